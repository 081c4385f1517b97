"""A room of 64 × 64 pixels with one soft ball in it, seen from above (numpy only)."""

from __future__ import annotations

import numpy as np

from models.worlds.arena import Floats, Picture

SIDE = 64
HALF = SIDE / 2
SIGMA = 7.0
"""Of the ball, in pixels: wide enough for a ball and its goal to overlap within reach of a plan."""
WALL = 0.8
"""The ball's middle stays within ± this; a state counts half sides of the room from its middle."""
TILE = 8
BALL = np.array((236, 84, 44), np.float32)


class PixelRoom:
    """State: the ball's place (right, down)."""

    size = 2
    reach = 14 / HALF
    near = 3.0
    unit = "px"

    def __init__(self) -> None:
        random = np.random.default_rng(7)  # the room looks the same for everybody
        tiles = random.uniform(40, 150, (SIDE // TILE, SIDE // TILE, 3)).repeat(TILE, 0).repeat(TILE, 1)
        self._floor = np.clip(tiles + random.normal(0, 6, (SIDE, SIDE, 3)), 0, 255).astype(np.float32)
        self._place = np.zeros(2, np.float32)

    def place(self, random: np.random.Generator) -> None:
        self._place = random.uniform(-WALL, WALL, 2).astype(np.float32)

    def state(self) -> Floats:
        return self._place.copy()

    def picture(self) -> Picture:
        across, down = (
            np.exp(-((np.arange(SIDE) + 0.5 - HALF * (1 + at)) ** 2) / (2 * SIGMA**2)) for at in self._place
        )
        ball = (down[:, None] * across[None, :])[:, :, None].astype(np.float32)
        shown: Picture = (self._floor * (1 - ball) + BALL * ball + 0.5).astype(np.uint8)
        return shown

    def act(self, action: Floats) -> None:
        step = np.clip(action, -self.reach, self.reach)
        self._place = np.clip(self._place + step, -WALL, WALL).astype(np.float32)

    def bearings(self, states: Floats) -> Floats:
        return states

    def mark(self, state: Floats) -> tuple[float, float]:
        return float(0.5 + state[0] / 2), float(0.5 + state[1] / 2)

    def distance(self, state: Floats) -> float:
        return float(np.linalg.norm(self._place - state) * HALF)
