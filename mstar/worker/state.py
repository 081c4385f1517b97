"""What a worker holds of sessions and requests between steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mstar.carried import Slice
from mstar.graph.cursor import Cursor, Taken
from mstar.graph.plan import WalkPlan
from mstar.messages import Commit, Credit, Feed, Fire, Fired, Give, Image, Items, Pace, Room
from mstar.placement import Seating
from mstar.streaming.buffer import StreamBuffer
from mstar.streaming.history import History
from mstar.tensors import Value
from mstar.worker.hosted import Hosted

Told = Items | Room | Pace | Fire | Fired | Give | Image
"""What workers of one request say to each other."""
Early = Feed | Commit | Credit | Told
"""What may come before its request: from the client, or from another worker that heard of it first."""
EARLY = 256
"""Messages of clients a session may hold for requests that have not begun here."""
EARLY_ITEMS = 8192
"""Messages of other workers, likewise; the room of the streams bounds them below that."""
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
    seating: Seating
    client: str
    settings: Mapping[str, Value]
    trace: bool
    live: dict[str, LiveStream] = field(default_factory=dict)
    requests: dict[str, RequestState] = field(default_factory=dict)
    early: list[Early] = field(default_factory=list)
    ended: deque[str] = field(default_factory=lambda: deque(maxlen=TOMBSTONES))

    @property
    def here(self) -> frozenset[str]:
        """The partitions whose home this worker is."""
        return frozenset(name for name, worker in self.seating.homes.items() if worker == self.family.worker)

    def hold(self, message: Early) -> bool:
        """Keep a message until its request begins; False if it is late, or too many wait."""
        most = EARLY if isinstance(message, Feed | Commit | Credit) else EARLY_ITEMS
        if message.request in self.ended or len(self.early) >= most:
            return False
        self.early.append(message)
        return True

    def release(self, request: str) -> list[Early]:
        """Take out what waited for a request."""
        held = [message for message in self.early if message.request == request]
        self.early = [message for message in self.early if message.request != request]
        return held

    def bury(self, request: str) -> None:
        """What comes for the request from now on is late."""
        self.ended.append(request)
        self.release(request)


@dataclass(slots=True)
class Outlet:
    """A stream whose consumer is on another worker, as its producer sees it; all in items, absolute."""

    worker: str
    upto: int  # may be sent
    produced: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Errand:
    """At home: a firing that was sent elsewhere and has not come back."""

    partition: str
    cursor: Cursor
    node: int
    component: str
    worker: str


@dataclass(frozen=True, slots=True, eq=False)
class Guest:
    """Where it runs: a firing of a partition whose home is elsewhere, or whose state is on its way."""

    plan: WalkPlan
    partition: str
    node: int
    taken: Taken
    home: str
    number: int  # of the errand
    image: int = 0  # the image of its component's state that it has to wait for


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """At home: stands for a value that stayed where it was made, by the node and output that made it."""

    node: int
    output: str


@dataclass(slots=True)
class Left:
    """Where it was made: a value that only nodes here will read, each once."""

    value: Any
    readers: int


@dataclass(slots=True)
class RequestState:
    """One request's share of this worker."""

    name: str
    epoch: int
    session: SessionState
    settings: Mapping[str, Value]
    inputs: Mapping[str, Any]  # a Slice stands for items of a live stream
    positions: Mapping[str, int]
    seed: int
    partitions: frozenset[str]  # all that its task runs, here or elsewhere
    workers: tuple[str, ...]  # that take part in it
    silent: bool = False  # it answers, and not in sound
    cursors: dict[str, Cursor] = field(default_factory=dict)  # partition → walk in progress
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)  # partition → kept values
    buffers: dict[tuple[str, str], StreamBuffer] = field(default_factory=dict)  # (stream, partition)
    produced: dict[tuple[str, str], int] = field(default_factory=dict)  # items put into (stream, partition)
    outlets: dict[tuple[str, str], Outlet] = field(default_factory=dict)  # (stream, partition) that ends elsewhere
    sources: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (stream, partition) here → worker feeding it
    told: dict[tuple[str, str], int] = field(default_factory=dict)  # (stream, partition) here → room its source knows
    begun: bool = False  # something has left for the client
    errands: dict[int, Errand] = field(default_factory=dict)  # by number
    sent: int = 0  # number of the last errand
    guests: dict[tuple[str, int], Guest] = field(default_factory=dict)  # (partition, node) → firing not yet run
    left: dict[tuple[str, int, str], Left] = field(default_factory=dict)  # (partition, node, output) → what stayed here
    holders: dict[str, str] = field(default_factory=dict)  # at home: moving component → worker that has its state
    moves: dict[str, int] = field(default_factory=dict)  # at home: moving component → number of its last image
    images: dict[str, int] = field(default_factory=dict)  # moving component → number of the last image taken here
    emitted: dict[str, int] = field(default_factory=dict)  # emissions per output
    weight: dict[str, int] = field(default_factory=dict)  # weight emitted per output
    credit: dict[str, int] = field(default_factory=dict)  # weight the client takes, absolute
    played: int = 0  # samples heard, as the client says
    sounded: int = 0  # samples emitted
    served: int = 0  # number of the last step it took part in
    deferred: bool = False  # waits for memory
    due: float = math.inf  # clock time (s) by which a planner's answer is wanted
    order: int = 0  # which of the worker's requests it is, counted from the first
    preempted: int = 0  # how often its K/V were dropped for another request

    @property
    def alive(self) -> bool:
        """Whether it has not ended here."""
        return self.session.requests.get(self.name) is self

    def runs_on(self, partition: str, plan: WalkPlan, node: int) -> str | None:
        """The worker that a firing has to be sent to; None = it runs here, and its state is here."""
        seating, here = self.session.seating, self.session.family.worker
        if not seating.away and not seating.moving:
            return None
        planned = plan.nodes[node]
        name = planned.component
        worker = seating.away.get((partition, plan.name, planned.name), here)
        if worker != here or name not in seating.moving:
            return None if worker == here else worker
        arrived = self.images.get(name, 0) >= self.moves.get(name, 0)
        return None if arrived and self.holders.get(name, here) == here else here

    def full(self, stream: str, partition: str) -> bool:
        """Whether a stream takes no more items now; one into a partition that does not run takes all."""
        key = (stream, partition)
        buffer = self.buffers.get(key)
        if buffer is not None:
            return buffer.free <= 0
        outlet = self.outlets.get(key)
        return outlet is not None and outlet.produced >= outlet.upto

    def buffer(self, partition: str, port: str) -> StreamBuffer:
        """The buffer that feeds a streaming input."""
        return self.buffers[(self.session.family.ports[(partition, port)], partition)]
