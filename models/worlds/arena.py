"""What an environment shows of itself, and random walks through it (no torch)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Picture = NDArray[np.uint8]


class Arena(Protocol):
    """A robot, and a camera that looks at it.

    An action is a change of the state, at most `reach` in every dimension; where nothing is in the way, the state after
    it is their sum.
    """

    size: int  # numbers of a state, and of an action
    reach: float
    near: float  # a goal is reached within this distance
    unit: str  # of distances

    def place(self, random: np.random.Generator) -> None:
        """Put the robot anywhere."""
        ...

    def state(self) -> Floats:
        """[size]."""
        ...

    def picture(self) -> Picture:
        """What the camera sees: [height, width, 3]."""
        ...

    def act(self, action: Floats) -> None:
        """Move, until the robot stands still."""
        ...

    def bearings(self, states: Floats) -> Floats:
        """States [n, size] → numbers of the size of 1 [n, …] that are near each other where the robot is."""
        ...

    def mark(self, state: Floats) -> tuple[float, float]:
        """Where what the robot holds out is in a picture: right and down, from 0 to 1."""
        ...

    def distance(self, state: Floats) -> float:
        """From what the robot holds out to where that is in another state, in `unit`."""
        ...


@dataclass(frozen=True, slots=True)
class Walks:
    """Episodes of equal length: pictures [episodes, frames, height, width, 3], states and actions
    [episodes, frames, size]; the last action of an episode leads nowhere.
    """

    pictures: Picture
    states: Floats
    actions: Floats


def walk(arena: Arena, episodes: int, frames: int, random: np.random.Generator) -> Walks:
    """Random actions from random places."""
    pictures, states = [], []
    actions = random.uniform(-arena.reach, arena.reach, (episodes, frames, arena.size)).astype(np.float32)
    for episode in range(episodes):
        arena.place(random)
        for frame in range(frames):
            pictures.append(arena.picture())
            states.append(arena.state())
            if frame + 1 < frames:
                arena.act(actions[episode, frame])
    shape = (episodes, frames)
    return Walks(np.stack(pictures).reshape(*shape, *pictures[0].shape), np.stack(states).reshape(*shape, -1), actions)
