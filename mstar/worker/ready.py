"""What could run now on a worker, kept up to date change by change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mstar.clock import Clock
from mstar.graph.cursor import Cursor
from mstar.streaming.buffer import StreamBuffer
from mstar.worker.hosted import qualified
from mstar.worker.scheduler import COMFORT, Runnable, next_batch
from mstar.worker.state import RequestState

SOUND_RATE = 24_000
"""Samples a second assumed when sounds ahead of their listeners are compared."""

SILENT_AHEAD = COMFORT / 2
"""What an answer in text counts as once it has begun: it neither stops a sound that runs short nor waits for all."""

Choice = tuple[Runnable, RequestState, Cursor]


class Ready:
    """The runnable nodes of all requests. `refresh` after any change to one partition of one request."""

    def __init__(self, clock: Clock, limits: Mapping[str, int]) -> None:
        self._clock = clock
        self._limits = limits
        self._runnable: dict[tuple[str, str, int], tuple[RequestState, Cursor]] = {}
        self._deadlines: dict[tuple[str, str], tuple[float, RequestState]] = {}  # ms

    def __len__(self) -> int:
        return len(self._runnable)

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
            if node in able:
                self._runnable[key] = (request, cursor)
            else:
                self._runnable.pop(key, None)

    def forget(self, request: RequestState, partition: str, cursor: Cursor) -> None:
        """The walk is over."""
        for node in cursor.plan.node_ids:
            self._runnable.pop((request.name, partition, node), None)
        self._deadlines.pop((request.name, partition), None)

    def choose(self) -> list[Choice]:
        """Take out the next batch; [] if nothing can run."""
        self._pass_deadlines()
        candidates = []
        for (name, partition, node), (request, cursor) in self._runnable.items():
            if request.deferred:
                continue
            family = request.session.family
            component = cursor.plan.component(node)
            candidates.append(
                Runnable(
                    name,
                    partition,
                    node,
                    qualified(family.name, component),
                    cursor.plan.name,
                    _ahead(request),
                    family.depth[component],
                    request.served,
                )
            )
        batch = next_batch(candidates, self._limits)
        return [(each, *self._runnable.pop((each.request, each.partition, each.node))) for each in batch]

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


def _ahead(request: RequestState) -> float:
    """Seconds ahead of the listener; negative until something has left."""
    if request.sounded:
        return (request.sounded - request.played) / SOUND_RATE
    return SILENT_AHEAD if request.silent and request.begun else -1.0


def _has_room(request: RequestState, cursor: Cursor, node: int) -> bool:
    """Whether what the node puts out would be taken: by the client's credit, by the consumers' buffers."""
    for emit in cursor.plan.emits(node):
        if emit.window is not None and request.weight.get(emit.name, 0) >= request.credit.get(emit.name, 0):
            return False
    return not any(request.full(edge.name, edge.partition) for edge in cursor.plan.streams_out(node))
