"""What a worker's steps did: kept for whoever asks later, sent at once to the sessions that asked to be told."""

from __future__ import annotations

from collections import deque

from mstar.bus import Endpoint
from mstar.engine.api import Firing
from mstar.messages import Traced
from mstar.tensors import Value
from mstar.trace import Record
from mstar.worker.state import SessionState

KEPT = 65_536
"""Firings of all sessions that a worker remembers, ended sessions' included: about 15 MB."""


class Tracing:
    """Records of sessions that want them gather over a step and go out together."""

    def __init__(self, worker: str, endpoint: Endpoint) -> None:
        self._worker = worker
        self._endpoint = endpoint
        self._kept: deque[tuple[str, Record]] = deque(maxlen=KEPT)
        self._gathered: dict[str, tuple[str, list[Record]]] = {}  # session → its client, records

    def add(self, firing: Firing, session: SessionState, batch: int, started: float, ms: float) -> None:
        """A firing that was one of `batch` in a step."""
        span = next(iter(firing.spans.values()), None)
        record = Record(
            at=started,
            worker=self._worker,
            request=firing.request,
            component=firing.component.rpartition("/")[2],
            walk=firing.walk,
            batch=batch,
            ms=round(ms, 3),
            iteration=firing.iteration,
            new=span.n_new if span else -1,
            first=span.first if span else -1,
            node=firing.node,
        )
        self._kept.append((session.name, record))
        if session.trace:
            self._gathered.setdefault(session.name, (session.client, []))[1].append(record)

    def send(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for name, (client, records) in gathered.items():
            self._endpoint.send(client, Traced(name, self._worker, tuple(tuple(each) for each in records)))

    def of(self, session: str) -> Value:
        """Rows of `mstar.trace.Record` that are still known of a session, in order."""
        return [list(record) for name, record in self._kept if name == session]
