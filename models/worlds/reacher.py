"""MuJoCo's Reacher, as gymnasium has it, behind a controller of joint angles.

A flat arm of two links, 21 cm long together, seen from above. Gymnasium's actions are torques; here an action is a
change of the two joint angles, towards which a controller drives the arm until it stands. The red ball that the task
of gymnasium asks for is put out of sight: goals are pictures of the arm.
"""

from __future__ import annotations

import math
import os
from typing import Any

os.environ.setdefault("MUJOCO_GL", "egl")  # mujoco reads it when it is imported: pictures are made without a screen

import gymnasium
import numpy as np

from models.worlds.arena import Floats, Picture

SIDE = 64
HALF = 0.24
"""Metres that the camera sees to every side."""
VIEW = {
    "distance": HALF / math.tan(math.radians(22.5)),
    "azimuth": 90.0,
    "elevation": -90.0,
    "lookat": np.array((0.0, 0.0, 0.0)),
}
"""From above; the camera's field of view is 45°."""
ELBOW = 2.8
"""Most that the second joint is asked to turn; its limit is 3.0."""
OUT_OF_SIGHT = (0.27, 0.27)
GEAR = 200.0
"""Torque of a full action of gymnasium's."""
STIFF, DAMP = 225.0, 30.0
"""Torque per radian and per radian a second: critically damped for joints whose inertia is 1 kg m²."""
PUSHES = 25
"""Gymnasium's steps of 20 ms that one action takes."""


class Reacher:
    """State: the two joint angles, the first within ± π."""

    size = 2
    reach = 1.0
    near = 0.02
    unit = "m"

    def __init__(self) -> None:
        self._world: Any = gymnasium.make(
            "Reacher-v5", render_mode="rgb_array", width=SIDE, height=SIDE, default_camera_config=VIEW,
            max_episode_steps=1_000_000_000, disable_env_checker=True,
        )  # fmt: skip
        self._world.reset(seed=0)
        self._arm: Any = self._world.unwrapped
        self._stand(np.zeros(2))

    def close(self) -> None:
        """Give the picture's memory back."""
        self._world.close()

    def place(self, random: np.random.Generator) -> None:
        self._stand(random.uniform((-math.pi, -ELBOW), (math.pi, ELBOW)))

    def state(self) -> Floats:
        angles = np.array(self._arm.data.qpos[:2], np.float32)
        angles[0] = math.remainder(float(angles[0]), 2 * math.pi)
        return angles

    def picture(self) -> Picture:
        shown: Picture = np.array(self._world.render(), np.uint8)
        return shown

    def act(self, action: Floats) -> None:
        wanted = self._arm.data.qpos[:2] + np.clip(action, -self.reach, self.reach)
        wanted[1] = np.clip(wanted[1], -ELBOW, ELBOW)
        for _ in range(PUSHES):
            off, speed = wanted - self._arm.data.qpos[:2], self._arm.data.qvel[:2]
            self._world.step(np.clip((STIFF * off - DAMP * speed) / GEAR, -1.0, 1.0).astype(np.float32))

    def bearings(self, states: Floats) -> Floats:
        upper, lower = states[:, 0], states[:, 0] + states[:, 1]  # directions of the links
        elbow = states[:, 1] / 2  # can not go round, so that its angle is no circle
        return np.stack((np.cos(upper), np.sin(upper), np.cos(lower), np.sin(lower), elbow), axis=1).astype(np.float32)

    def mark(self, state: Floats) -> tuple[float, float]:
        right, up = fingertip(state) / (2 * HALF)
        return float(0.5 + right), float(0.5 - up)

    def distance(self, state: Floats) -> float:
        return float(np.linalg.norm(fingertip(self.state()) - fingertip(state)))

    def _stand(self, angles: np.ndarray) -> None:
        self._arm.set_state(np.array((*angles, *OUT_OF_SIGHT)), np.zeros(4))


def fingertip(angles: Floats) -> np.ndarray:
    """Joint angles → its place in the plane, in metres."""
    first, second = float(angles[0]), float(angles[0] + angles[1])
    return np.array((0.1 * math.cos(first) + 0.11 * math.cos(second), 0.1 * math.sin(first) + 0.11 * math.sin(second)))
