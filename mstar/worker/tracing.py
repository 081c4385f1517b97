"""What a worker's steps did: kept for whoever asks later, sent at once to the sessions that asked to be told."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from mstar.bus import Endpoint
from mstar.engine.api import Firing
from mstar.messages import Traced
from mstar.tensors import Value
from mstar.trace import Record
from mstar.worker.state import SessionState

KEPT = 65_536
"""Firings of all sessions that a worker remembers, ended sessions' included: about 20 MB."""
Row: TypeAlias = tuple[float, str, str, str, str, int, float, int, int, int, str]
"""The fields of a `mstar.trace.Record`."""


class Tracing:
    """Records of sessions that want them gather over a step and go out together."""

    def __init__(self, worker: str, endpoint: Endpoint) -> None:
        self._worker = worker
        self._endpoint = endpoint
        self._kept: deque[tuple[str, Row]] = deque(maxlen=KEPT)
        self._gathered: dict[str, tuple[str, list[Row]]] = {}  # session → its client, rows

    def add(self, firing: Firing, session: SessionState, batch: int, started: float, ms: float) -> None:
        """A firing that was one of `batch` in a step. Every firing passes here: a row is made plainly, and once."""
        new = first = -1
        for span in firing.spans.values():
            new, first = span.n_new, span.first
            break
        row = (
            started,
            self._worker,
            firing.request,
            firing.component,
            firing.walk,
            batch,
            ms,
            firing.iteration,
            new,
            first,
            firing.node,
        )
        self._kept.append((session.name, row))
        if session.trace:
            self._gathered.setdefault(session.name, (session.client, []))[1].append(row)

    def send(self) -> None:
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, {}
        for name, (client, rows) in gathered.items():
            self._endpoint.send(client, Traced(name, self._worker, tuple(tuple(_record(row)) for row in rows)))

    def of(self, session: str) -> Value:
        """Rows of `mstar.trace.Record` that are still known of a session, in order."""
        return [list(_record(row)) for name, row in self._kept if name == session]


def _record(row: Row) -> Record:
    """The row as it is told: the component without its family, the duration to the microsecond."""
    record = Record(*row)
    return record._replace(component=record.component.rpartition("/")[2], ms=round(record.ms, 3))
