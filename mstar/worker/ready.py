"""What could run now on a worker, kept up to date change by change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from mstar.clock import Clock
from mstar.errors import Rejected
from mstar.graph.cursor import Cursor
from mstar.streaming.buffer import StreamBuffer
from mstar.tensors import Value
from mstar.worker.costs import StepCosts
from mstar.worker.hosted import qualified
from mstar.worker.scheduler import COMFORT, Pressure, Runnable, next_batch, pressure
from mstar.worker.state import Guest, RequestState

SOUND_RATE = 24_000
"""Samples a second assumed when sounds ahead of their listeners are compared."""

SILENT_AHEAD = COMFORT / 2
"""What an answer in text counts as once it has begun: it neither stops a sound that runs short nor waits for all."""

Key = tuple[str, str, int]
"""(request, partition, node)"""
Choice = tuple[Runnable, RequestState, Cursor | Guest]


class Ready:
    """The runnable nodes of all requests. `refresh` after any change to one partition of one request."""

    def __init__(self, clock: Clock, limits: Mapping[str, int]) -> None:
        self._clock = clock
        self._limits = limits
        self.costs = StepCosts()
        self._chosen = 0  # batches so far
        self._since: dict[Key, int] = {}  # of what can run here: number of the batch after which it first could
        self._runnable: dict[Key, tuple[RequestState, Cursor]] = {}
        self._guests: dict[Key, tuple[RequestState, Guest]] = {}  # firings that were sent here
        self._leaving: dict[Key, tuple[RequestState, Cursor]] = {}  # nodes that run elsewhere
        self._deadlines: dict[tuple[str, str], tuple[float, RequestState]] = {}  # ms

    def __len__(self) -> int:
        return len(self._runnable) + len(self._guests) + len(self._leaving)

    @property
    def now(self) -> float:
        """Milliseconds, as stream buffers count."""
        return self._clock.now() * 1000

    def refresh(self, request: RequestState, partition: str) -> None:
        """Find out anew which nodes of the partition's walk could run."""
        cursor = request.cursors.get(partition)
        if cursor is None:
            return
        able = [node for node in cursor.ready() if _has_room(request, cursor, node)]
        now = self.now
        for node, ports in cursor.wants():
            buffers = [request.buffer(partition, port) for port in ports]
            if not all(buffer.ready(now) for buffer in buffers):
                self._note_deadline(request, partition, buffers)
            elif _has_room(request, cursor, node):
                able.append(node)
        for node in cursor.plan.node_ids:
            key = (request.name, partition, node)
            self._runnable.pop(key, None)
            self._leaving.pop(key, None)
            if node not in able:
                self._since.pop(key, None)
            else:
                self._since.setdefault(key, self._chosen)
                here = request.runs_on(partition, cursor.plan, node) is None
                (self._runnable if here else self._leaving)[key] = (request, cursor)

    def restore(self, choice: Choice) -> None:
        """A firing that was chosen, got nothing of its step and could run again: it has waited all the while."""
        each, request, _ = choice
        request.served = each.served
        key = (each.request, each.partition, each.node)
        if key in self._since:
            self._since[key] = self._chosen - 1 - each.waited

    def admit(self, request: RequestState, guest: Guest) -> None:
        """A firing that was sent here may be chosen."""
        key = (request.name, guest.partition, guest.node)
        self._guests[key] = (request, guest)
        self._since.setdefault(key, self._chosen)

    def dismiss(self, request: RequestState, guest: Guest) -> None:
        """A firing that was sent here is no longer wanted."""
        self._guests.pop((request.name, guest.partition, guest.node), None)
        self._since.pop((request.name, guest.partition, guest.node), None)

    def leaving(self) -> Iterator[tuple[str, int, RequestState, Cursor]]:
        """Firings that could be sent elsewhere: partition, node, request, cursor; also while they are being sent."""
        self._pass_deadlines()
        for key in list(self._leaving):
            if key in self._leaving:
                request, cursor = self._leaving[key]
                yield key[1], key[2], request, cursor

    def forget(self, request: RequestState, partition: str, cursor: Cursor) -> None:
        """The walk is over."""
        for node in cursor.plan.node_ids:
            self._runnable.pop((request.name, partition, node), None)
            self._leaving.pop((request.name, partition, node), None)
            self._since.pop((request.name, partition, node), None)
        self._deadlines.pop((request.name, partition), None)

    def choose(self) -> list[Choice]:
        """Take out the next batch; [] if nothing can run."""
        self._pass_deadlines()
        candidates = []
        pressing: dict[str, Pressure] = {}
        for (name, partition, node), (request, cursor) in self._all():
            if request.deferred:
                continue
            family = request.session.family
            component = cursor.plan.component(node)
            if name not in pressing:
                pressing[name] = self.pressing(request)
            candidates.append(
                Runnable(
                    name,
                    partition,
                    node,
                    qualified(family.name, component),
                    cursor.plan.name,
                    pressing[name],
                    family.depth[component],
                    request.served,
                    self._chosen - self._since.get((name, partition, node), self._chosen),
                    family.components[component].engine != "kv",
                )
            )
        batch = next_batch(candidates, self._limits, self.costs)
        self._chosen += bool(batch)
        return [(each, *self._pop((each.request, each.partition, each.node))) for each in batch]

    def pressing(self, request: RequestState) -> Pressure:
        """How urgent the request is now."""
        return pressure(_ahead(request), request.due, self._clock.now())

    def _all(self) -> Iterator[tuple[Key, tuple[RequestState, Cursor | Guest]]]:
        yield from self._runnable.items()
        yield from self._guests.items()

    def _pop(self, key: Key) -> tuple[RequestState, Cursor | Guest]:
        self._since.pop(key, None)
        return self._guests.pop(key) if key in self._guests else self._runnable.pop(key)

    def next_wake(self) -> float | None:
        """Clock time (s) at which a stream's deadline passes, if one is pending."""
        return min(at for at, _ in self._deadlines.values()) / 1000 if self._deadlines else None

    def _note_deadline(self, request: RequestState, partition: str, buffers: Sequence[StreamBuffer]) -> None:
        times = [at for buffer in buffers if (at := buffer.next_deadline()) is not None]
        if times:
            self._deadlines[(request.name, partition)] = (min(times), request)

    def _pass_deadlines(self) -> None:
        if not self._deadlines:
            return
        now = self.now
        for key in [key for key, (at, _) in self._deadlines.items() if at <= now]:
            _, request = self._deadlines.pop(key)
            self.refresh(request, key[1])


def due_of(settings: Mapping[str, Value], now: float) -> float:
    """Clock time (s) at which a request's `deadline_ms` ends, inf without one. Raises Rejected."""
    given = settings.get("deadline_ms")
    if given is None:
        return math.inf
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
        raise Rejected(f"deadline_ms must be a positive number, got {given!r}", param="settings.deadline_ms")
    return now + given / 1000


def _ahead(request: RequestState) -> float:
    """Seconds ahead of the listener; negative until something has left. Nobody waits for work in the background."""
    if request.settings.get("background"):
        return COMFORT
    if request.sounded:
        return (request.sounded - request.played) / SOUND_RATE
    return SILENT_AHEAD if request.silent and request.begun else -1.0


def _has_room(request: RequestState, cursor: Cursor, node: int) -> bool:
    """Whether what the node puts out would be taken: by the client's credit, by the consumers' buffers."""
    for emit in cursor.plan.emits(node):
        if emit.window is not None and request.weight.get(emit.name, 0) >= request.credit.get(emit.name, 0):
            return False
    return not any(request.full(edge.name, edge.partition) for edge in cursor.plan.streams_out(node))
