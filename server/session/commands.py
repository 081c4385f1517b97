"""What the session core asks its shell to do, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mstar.client import Slice
from mstar.tensors import Value
from server.events.server import ServerEvent
from server.events.session import AudioFormat

Input: TypeAlias = "Value | Slice"
"""What a task may be given: a value, or a slice of what the client streams."""


@dataclass(frozen=True, slots=True)
class Send:
    """Tell the client."""

    event: ServerEvent


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start a task of the family; `key` names it from now on."""

    key: int
    task: str
    inputs: Mapping[str, Input]
    settings: Mapping[str, Value]
    positions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class InterruptTask:
    """End a task; nothing of it is wanted any more. `heard` = last sample of its sound that was heard."""

    key: int
    heard: int | None = None


@dataclass(frozen=True, slots=True)
class GrantCredit:
    """The listener takes the task's `audio` up to sample `upto`; `played` samples are heard."""

    key: int
    upto: int
    played: int


@dataclass(frozen=True, slots=True)
class FeedMic:
    """Items of the microphone stream from `index` on: float32 [items, samples per item]."""

    index: int
    rows: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PlayAudio:
    """Sound of a response for the client: float32 [n] at the family's speech rate, from sample `start` on.

    `last`: the sound ends here (and `pcm` may be empty). `slack`: seconds of sound that the listener still had to play
    when this was given, None for the beginning of an answer.
    """

    response_id: str
    item_id: str
    output_index: int
    content_index: int
    format: AudioFormat
    start: int
    pcm: npt.NDArray[np.float32]
    last: bool
    slack: float | None = None


@dataclass(frozen=True, slots=True)
class ClearAudio:
    """Sound of this response that has not left yet is not wanted any more."""

    response_id: str


@dataclass(frozen=True, slots=True)
class Underran:
    """The listener of a response had played everything before more was there."""

    response_id: str


@dataclass(frozen=True, slots=True)
class BargedIn:
    """The user has interrupted an answer; `seconds` ago the first sound of it had come."""

    seconds: float


@dataclass(frozen=True, slots=True)
class EndSession:
    """Close the connection with this WebSocket close code."""

    code: int
    reason: str


Command: TypeAlias = (
    Send | StartTask | InterruptTask | GrantCredit | FeedMic | PlayAudio | ClearAudio | Underran | BargedIn | EndSession
)
