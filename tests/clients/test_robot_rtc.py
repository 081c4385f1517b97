"""A robot's live session over WebRTC: cameras as video tracks in, chunks out, what is imagined as a video."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from server.robot.frames import Encoding, Shot
from tests.clients.conftest import Serving, serving
from tests.clients.robot_rtc import AHEAD, CameraTrack, plain, robot
from tests.painter.model import STEP
from tests.painter.watcher import CAMERAS

PLANNER, POLICY = "tests.painter.model", "tests.painter.watcher"
RED, GREEN, BLUE, GREY = (200, 30, 30), (30, 200, 30), (30, 30, 200), (120, 120, 120)
CODEC_LOSS = 12
"""Levels that VP8 and its halved colour planes may change a plain picture by."""


@pytest.fixture(scope="module")
def painters() -> Iterator[Serving]:
    yield from serving(PLANNER, POLICY, "toy")


def raw(picture: np.ndarray) -> Shot:
    height, width, _ = picture.shape
    return Shot(Encoding.RGB, width, height, picture.tobytes())


async def test_four_cameras_are_seen_each_under_its_name(painters: Serving) -> None:
    colours = (RED, GREEN, BLUE, GREY)
    cameras = [CameraTrack(lambda _, colour=colour: plain(colour)) for colour in colours]  # type: ignore[misc]
    async with robot(painters, cameras, model=POLICY) as client:
        assert client.session["offer"]["cameras"] == list(CAMERAS)
        client.state(0.0, 0.0)
        client.send("session.update", session={"cameras": CAMERAS, "prompt": "look", "sync_ms": 200, "wait_ms": 20000})
        first = client.now
        chunk = await client.chunk(id="a")
        assert chunk["missing"] == []
        assert chunk["spread_ms"] <= 200
        assert np.abs(np.array(chunk["actions"]) - colours).max() < CODEC_LOSS
        # On the robot's clock, which is far from the server's and from its own wall clock.
        assert all(first - 5 < at < client.now for at in chunk["t_capture"].values())


def bars(shift: int = 0) -> np.ndarray:
    """Four upright bars; 64 × 64."""
    picture = np.concatenate([plain(colour, 64, 16) for colour in (RED, GREEN, BLUE, GREY)], axis=1)
    return np.roll(picture, shift, axis=1)


def middles(picture: np.ndarray) -> np.ndarray:
    """Colours in the middle of the bars [4, 3]; codecs smear their edges."""
    found: np.ndarray = picture[24:40, 6::16][:, :4].mean(axis=0)
    return found


async def test_what_is_imagined_comes_as_a_video(painters: Serving) -> None:
    async with robot(painters, [CameraTrack(lambda _: bars())], watching=True, model=PLANNER) as client:
        client.state(1.0, 2.0)
        client.goal("home", raw(bars()))
        chunk = await client.chunk()
        np.testing.assert_allclose(chunk["actions"], [[1.0, 2.0]] * 4)
        assert chunk["plan"]["energy"] == pytest.approx(bars().mean(), abs=CODEC_LOSS)
        await client.pictures(4)
        for number, picture in enumerate(client.shown[:4], 1):
            assert picture.shape == (64, 64, 3)
            assert np.abs(middles(picture) - middles(bars(number * STEP))).max() < 2 * CODEC_LOSS
        await client.pictures(6)  # the last one is repeated
        assert np.abs(middles(client.shown[5]) - middles(bars(4 * STEP))).max() < 2 * CODEC_LOSS


@pytest.mark.parametrize("wall", [True, False])
async def test_the_frame_that_was_used_is_dated_on_the_robots_clock(painters: Serving, wall: bool) -> None:
    made: list[float] = []

    def picture(number: int) -> np.ndarray:
        made.append(time.monotonic() + AHEAD)
        return plain(GREY)

    camera = CameraTrack(picture)
    async with robot(painters, [camera], wall=wall, model=PLANNER) as client:
        client.state(0.0, 0.0)
        client.goal("home", raw(bars()))
        for _ in range(3):
            chunk = await client.chunk()
        number, at = chunk["obs_seq"]["camera"], chunk["t_capture"]["camera"]
        assert 1 <= number <= camera.frames
        assert made[0] - 1 < at < client.now
        assert chunk["age_ms"] < (client.now - made[0]) * 1000
