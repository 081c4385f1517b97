"""What the core of a live session has its shell do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mstar.tensors import Value
from server.robot.events import ServerEvent
from server.robot.frames import Frame, Undeveloped


@dataclass(frozen=True, slots=True)
class Goal:
    """`shot` is None once the runtime's session knows the goal by its name."""

    name: str
    shot: Undeveloped | None


@dataclass(frozen=True, slots=True)
class Send:
    event: ServerEvent


@dataclass(frozen=True, slots=True)
class Begin:
    """Ask the model; the core is told of every emission, and of the end, under `key`."""

    key: int
    frames: Mapping[str, Frame]
    state: Mapping[str, np.ndarray]  # key → numbers
    prompt: str
    goal: Goal | None
    settings: Mapping[str, Value]
    previous: np.ndarray | None  # [rows, action_dim] of the chunk before, from the newest frame's time on
    delay: int  # rows that will be over when the chunk arrives


@dataclass(frozen=True, slots=True)
class Show:
    """A newer frame for a plan that has not looked yet."""

    key: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Cancel:
    """End it; nothing is told of it any more."""

    key: int


@dataclass(frozen=True, slots=True)
class Count:
    """What became of a frame or a chunk."""

    of: str  # frames | chunks
    how: str
    age: float | None = None  # seconds, of a chunk's oldest frame


@dataclass(frozen=True, slots=True)
class End:
    """Close the connection."""

    code: int
    reason: str


Command: TypeAlias = Send | Begin | Show | Cancel | Count | End
