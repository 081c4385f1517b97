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
from mstar.worker.scheduler import COMFORT, Pressure, Runnable, next_batch, pressure
from mstar.worker.state import Guest, RequestState

SOUND_RATE = 24_000
"""Samples a second assumed when sounds ahead of their listeners are compared."""

SILENT_AHEAD = COMFORT / 2
"""What an answer in text counts as once it has begun: it neither stops a sound that runs short nor waits for all."""

Walk = tuple[str, str]
"""(request, partition)"""
Key = tuple[str, str, int]
"""(request, partition, node)"""
Choice = tuple[Runnable, RequestState, Cursor | Guest]
ALONE = Pressure(2, 0.0)
"""How much a firing presses beside which there is no other."""


class Ready:
    """The runnable nodes of all requests. `refresh` after any change to one partition of one request.

    A walk that has changed, however often, is looked at once: when someone asks what can run.
    """

    def __init__(self, clock: Clock, limits: Mapping[str, int]) -> None:
        self._clock = clock
        self._limits = limits
        self.costs = StepCosts()
        self._chosen = 0  # batches so far
        self._changed: dict[Walk, RequestState] = {}  # walks to be looked at
        self._able: dict[Walk, list[int]] = {}  # nodes that can run, as they were seen last
        self._since: dict[Key, int] = {}  # of what can run here: number of the batch after which it first could
        self._runnable: dict[Key, tuple[RequestState, Cursor]] = {}
        self._guests: dict[Key, tuple[RequestState, Guest]] = {}  # firings that were sent here
        self._leaving: dict[Key, tuple[RequestState, Cursor]] = {}  # nodes that run elsewhere
        self._deadlines: dict[Walk, tuple[float, RequestState]] = {}  # ms

    def __len__(self) -> int:
        self._look()
        return len(self._runnable) + len(self._guests) + len(self._leaving)

    @property
    def now(self) -> float:
        """Milliseconds, as stream buffers count."""
        return self._clock.now() * 1000

    def refresh(self, request: RequestState, partition: str) -> None:
        """Something changed that nodes of the partition's walk may have waited for."""
        self._changed[(request.name, partition)] = request

    def restore(self, choice: Choice) -> None:
        """A firing that was chosen, got nothing of its step and could run again: it has waited all the while."""
        each, request, _ = choice
        self._look()
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
        self._look()
        if not self._leaving:
            return
        offered: set[Key] = set()
        while key := next((key for key in self._leaving if key not in offered), None):
            offered.add(key)
            request, cursor = self._leaving[key]
            yield key[1], key[2], request, cursor
            self._look()

    def forget(self, request: RequestState, partition: str) -> None:
        """The walk is over."""
        walk = (request.name, partition)
        self._changed.pop(walk, None)
        self._deadlines.pop(walk, None)
        for node in self._able.pop(walk, ()):
            self._take_out((*walk, node))

    def choose(self) -> list[Choice]:
        """Take out the next batch; [] if nothing can run."""
        self._look()
        held: list[tuple[Key, tuple[RequestState, Cursor | Guest]]] = [*self._runnable.items(), *self._guests.items()]
        found = [(key, request, walk) for key, (request, walk) in held if not request.deferred]
        pressing: dict[str, Pressure] = {}
        if len(found) > 1:
            for name, request in {key[0]: request for key, request, _ in found}.items():
                pressing[name] = self.pressing(request)
        candidates = [
            self._runnable_at(key, request, walk, pressing.get(key[0], ALONE)) for key, request, walk in found
        ]
        batch = next_batch(candidates, self._limits, self.costs)
        self._chosen += bool(batch)
        return [(each, *self._pop((each.request, each.partition, each.node))) for each in batch]

    def pressing(self, request: RequestState) -> Pressure:
        """How urgent the request is now."""
        return pressure(_ahead(request), request.due, self._clock.now())

    def _runnable_at(self, key: Key, request: RequestState, walk: Cursor | Guest, pressing: Pressure) -> Runnable:
        name, partition, node = key
        site = request.session.family.sites[(partition, walk.plan.name)][node]
        waited = self._chosen - self._since.get(key, self._chosen)
        return Runnable(
            name,
            partition,
            node,
            site.component,
            walk.plan.name,
            pressing,
            site.depth,
            request.served,
            waited,
            site.sliced,
        )

    def _pop(self, key: Key) -> tuple[RequestState, Cursor | Guest]:
        self._since.pop(key, None)
        if key in self._guests:
            return self._guests.pop(key)
        self._able[key[:2]].remove(key[2])
        return self._runnable.pop(key)

    # ------------------------------------------------------------------------------------------ what has changed

    def _look(self) -> None:
        """Find out which nodes could run of the walks that have changed, or whose deadline has passed."""
        if self._deadlines:
            self._pass_deadlines()
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        for walk, request in changed.items():
            cursor = request.cursors.get(walk[1])
            if cursor is not None and request.alive:
                self._look_at(walk, request, cursor)

    def _look_at(self, walk: Walk, request: RequestState, cursor: Cursor) -> None:
        partition = walk[1]
        able = [node for node in cursor.ready() if _has_room(request, cursor, node)]
        for node, ports in cursor.wants():
            buffers = [request.buffer(partition, port) for port in ports]
            now = self.now
            if not all(buffer.ready(now) for buffer in buffers):
                self._note_deadline(request, partition, buffers)
            elif _has_room(request, cursor, node):
                able.append(node)
        for node in self._able.get(walk, ()):
            if node not in able:
                self._take_out((*walk, node))
        for node in able:
            key = (*walk, node)
            self._since.setdefault(key, self._chosen)
            here = request.runs_on(partition, cursor.plan, node) is None
            (self._leaving if here else self._runnable).pop(key, None)
            (self._runnable if here else self._leaving)[key] = (request, cursor)
        self._able[walk] = able

    def _take_out(self, key: Key) -> None:
        self._runnable.pop(key, None)
        self._leaving.pop(key, None)
        self._since.pop(key, None)

    def next_wake(self) -> float | None:
        """Clock time (s) at which a stream's deadline passes, if one is pending."""
        self._look()
        return min(at for at, _ in self._deadlines.values()) / 1000 if self._deadlines else None

    def _note_deadline(self, request: RequestState, partition: str, buffers: Sequence[StreamBuffer]) -> None:
        times = [at for buffer in buffers if (at := buffer.next_deadline()) is not None]
        if times:
            self._deadlines[(request.name, partition)] = (min(times), request)

    def _pass_deadlines(self) -> None:
        now = self.now
        for walk in [walk for walk, (at, _) in self._deadlines.items() if at <= now]:
            _, request = self._deadlines.pop(walk)
            self.refresh(request, walk[1])


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
