from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from models.pi05.config import CAMERAS
from models.pi05.observation import Observation, parse
from models.pi05.robots import ROBOTS, Robot, own
from mstar.errors import Rejected

PICTURE = np.zeros((4, 6, 3), np.uint8)
GOOD: Mapping[str, Any] = {"images": {CAMERAS[0]: PICTURE}, "state": np.zeros(8, np.float32), "prompt": "go"}


def read(value: Any, robot: Robot | None = None) -> Observation:
    return parse(value, robot or own(CAMERAS), horizon=5, action_dim=4)


def test_the_own_names() -> None:
    found = read({**GOOD, "images": {CAMERAS[0]: PICTURE, CAMERAS[2]: None}})
    assert list(found.images) == [CAMERAS[0]]
    assert found.state is not None
    assert found.state.shape == (8,)
    assert (found.prompt, found.delay, found.previous.shape) == ("go", 0, (0, 4))


def test_channels_may_come_first() -> None:
    picture = np.arange(72, dtype=np.uint8).reshape(4, 6, 3)
    found = read({**GOOD, "images": {CAMERAS[0]: picture.transpose(2, 0, 1)}})
    assert np.array_equal(found.images[CAMERAS[0]], picture)


def test_droid_libero_and_aloha_clients() -> None:
    droid = read(
        {
            "observation/exterior_image_1_left": PICTURE,
            "observation/wrist_image_left": PICTURE,
            "observation/joint_position": np.arange(7.0),
            "observation/gripper_position": np.array([9.0]),
            "prompt": "go",
        },
        ROBOTS["droid"],
    )
    assert list(droid.images) == list(CAMERAS[:2])
    assert droid.state is not None
    assert droid.state.tolist() == [0, 1, 2, 3, 4, 5, 6, 9]
    libero = {"observation/image": PICTURE, "observation/state": np.zeros(8), "prompt": "go"}
    assert list(read(libero, ROBOTS["libero"]).images) == [CAMERAS[0]]
    aloha = {"images": {"cam_high": PICTURE, "cam_right_wrist": PICTURE}, "state": np.zeros(14), "prompt": "go"}
    assert list(read(aloha, ROBOTS["aloha"]).images) == [CAMERAS[0], CAMERAS[2]]


@pytest.mark.parametrize(
    ("value", "key", "code"),
    [
        ("go", "observation", "invalid_value"),
        ({**GOOD, "colour": 1}, "colour", "unknown_key"),
        ({**GOOD, "images": {}}, "images", "missing_key"),
        ({**GOOD, "images": [PICTURE]}, "images", "invalid_value"),
        ({**GOOD, "images": {"left_eye": PICTURE}}, "images/left_eye", "unknown_key"),
        ({**GOOD, "images": {CAMERAS[0]: np.zeros((4, 6))}}, f"images/{CAMERAS[0]}", "wrong_shape"),
        ({**GOOD, "images": {CAMERAS[0]: np.zeros((4, 6, 4), np.uint8)}}, f"images/{CAMERAS[0]}", "wrong_shape"),
        ({**GOOD, "images": {CAMERAS[0]: np.zeros((0, 6, 3), np.uint8)}}, f"images/{CAMERAS[0]}", "wrong_shape"),
        ({**GOOD, "images": {CAMERAS[0]: np.zeros((4, 6, 3), np.int64)}}, f"images/{CAMERAS[0]}", "invalid_value"),
        ({**GOOD, "images": {CAMERAS[0]: np.full((4, 6, 3), 255.0)}}, f"images/{CAMERAS[0]}", "invalid_value"),
        ({**GOOD, "images": {CAMERAS[0]: np.full((4, 6, 3), np.nan)}}, f"images/{CAMERAS[0]}", "invalid_value"),
        ({name: GOOD[name] for name in ("images", "prompt")}, "state", "missing_key"),
        ({**GOOD, "state": [0.0, np.nan]}, "state", "invalid_value"),
        ({**GOOD, "state": "home"}, "state", "invalid_value"),
        ({**GOOD, "prompt": "  "}, "prompt", "missing_key"),
        ({**GOOD, "prompt": None}, "prompt", "missing_key"),
        ({**GOOD, "tokens": [1.5]}, "tokens", "wrong_shape"),
        ({**GOOD, "noise": np.zeros((4, 4))}, "noise", "wrong_shape"),
        ({**GOOD, "prev_chunk": np.zeros((6, 4))}, "prev_chunk", "wrong_shape"),
        ({**GOOD, "prev_chunk": np.zeros((5, 3))}, "prev_chunk", "wrong_shape"),
        ({**GOOD, "prev_chunk": np.zeros((2, 4)), "delay_steps": 3}, "delay_steps", "invalid_value"),
        ({**GOOD, "delay_steps": 1}, "delay_steps", "invalid_value"),
        ({**GOOD, "prev_chunk": np.zeros((2, 4)), "delay_steps": -1}, "delay_steps", "invalid_value"),
        ({**GOOD, "prev_chunk": np.zeros((2, 4)), "delay_steps": True}, "delay_steps", "invalid_value"),
    ],
)
def test_what_is_wrong_is_named(value: Any, key: str, code: str) -> None:
    with pytest.raises(Rejected) as wrong:
        read(value)
    assert (wrong.value.param, wrong.value.code) == (key, code)
    assert key.rpartition("/")[2] in wrong.value.message


def test_a_state_of_another_robot_is_refused() -> None:
    with pytest.raises(Rejected, match="observation/state has 7 values, the robot has 8"):
        read({"observation/image": PICTURE, "observation/state": np.zeros(7), "prompt": "go"}, ROBOTS["libero"])
