"""What a worker's steps did, for the sessions that asked to be told."""

from __future__ import annotations

from mstar.bus import Endpoint
from mstar.engine.api import Firing
from mstar.messages import Traced
from mstar.trace import Record
from mstar.worker.state import SessionState


class Tracing:
    """Records gather over a step and go out together."""

    def __init__(self, worker: str, endpoint: Endpoint) -> None:
        self._worker = worker
        self._endpoint = endpoint
        self._gathered: dict[str, tuple[str, list[Record]]] = {}  # session → its client, records

    def add(self, firing: Firing, session: SessionState, batch: int, started: float, ms: float) -> None:
        """A firing that was one of `batch` in a step."""
        if not session.trace:
            return
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
        )
        self._gathered.setdefault(session.name, (session.client, []))[1].append(record)

    def send(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for name, (client, records) in gathered.items():
            self._endpoint.send(client, Traced(name, self._worker, tuple(tuple(each) for each in records)))
