"""What a worker holds of sessions and requests between steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mstar.graph.cursor import Cursor
from mstar.messages import Commit, Credit, Feed, Slice
from mstar.streaming.buffer import StreamBuffer
from mstar.streaming.history import History
from mstar.tensors import Value
from mstar.worker.hosted import Hosted

EARLY = 256
"""Messages a session may hold for requests that have not begun here."""
TOMBSTONES = 64
"""Ended requests a session remembers, so that late messages for them are not taken for early ones."""


@dataclass(frozen=True, slots=True)
class Want:
    """A walk input that is a slice of a live stream, some of which has not come yet."""

    slice: Slice
    request: str
    partition: str
    name: str


@dataclass(slots=True)
class LiveStream:
    """A session's live stream here: what slices may ask for, and who listens."""

    history: History
    listeners: list[tuple[str, str]] = field(default_factory=list)  # (request, partition)
    wants: list[Want] = field(default_factory=list)


@dataclass(slots=True)
class SessionState:
    name: str
    family: Hosted
    client: str
    settings: Mapping[str, Value]
    trace: bool
    live: dict[str, LiveStream] = field(default_factory=dict)
    requests: dict[str, RequestState] = field(default_factory=dict)
    early: list[Feed | Commit | Credit] = field(default_factory=list)  # what came before its request
    ended: deque[str] = field(default_factory=lambda: deque(maxlen=TOMBSTONES))

    def hold(self, message: Feed | Commit | Credit) -> bool:
        """Keep a message until its request begins; False if it is late, or too many wait."""
        if message.request in self.ended or len(self.early) >= EARLY:
            return False
        self.early.append(message)
        return True

    def release(self, request: str) -> list[Feed | Commit | Credit]:
        """Take out what waited for a request."""
        held = [message for message in self.early if message.request == request]
        self.early = [message for message in self.early if message.request != request]
        return held

    def bury(self, request: str) -> None:
        """What comes for the request from now on is late."""
        self.ended.append(request)
        self.release(request)


@dataclass(slots=True)
class RequestState:
    """One request's share of this worker."""

    name: str
    session: SessionState
    settings: Mapping[str, Value]
    inputs: Mapping[str, Any]  # a Slice stands for items of a live stream
    positions: Mapping[str, int]
    seed: int
    partitions: frozenset[str]  # all that its task runs, here or elsewhere
    silent: bool = False  # it answers, and not in sound
    cursors: dict[str, Cursor] = field(default_factory=dict)  # partition → walk in progress
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)  # partition → kept values
    buffers: dict[tuple[str, str], StreamBuffer] = field(default_factory=dict)  # (stream, partition)
    produced: dict[tuple[str, str], int] = field(default_factory=dict)  # items put into (stream, partition)
    emitted: dict[str, int] = field(default_factory=dict)  # emissions per output
    weight: dict[str, int] = field(default_factory=dict)  # weight emitted per output
    credit: dict[str, int] = field(default_factory=dict)  # weight the client takes, absolute
    played: int = 0  # samples heard, as the client says
    sounded: int = 0  # samples emitted
    served: int = 0  # number of the last step it took part in
    deferred: bool = False  # waits for memory

    def buffer(self, partition: str, port: str) -> StreamBuffer:
        """The buffer that feeds a streaming input."""
        return self.buffers[(self.session.family.ports[(partition, port)], partition)]
