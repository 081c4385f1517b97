"""What the client sends to a worker directly: items of live streams, their ends, and credit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mstar.carried import Slice
from mstar.errors import Rejected
from mstar.messages import Commit, Credit, Feed, session_of
from mstar.streaming.buffer import StreamBuffer
from mstar.worker.ready import Ready
from mstar.worker.state import LiveStream, RequestState, SessionState, Want


class Intake:
    """`late` counts a message that is dropped, `fail` ends a request whose input can not be had."""

    def __init__(
        self,
        sessions: Mapping[str, SessionState],
        ready: Ready,
        late: Callable[[], None],
        fail: Callable[[RequestState, str, Rejected], None],
    ) -> None:
        self._sessions = sessions
        self._ready = ready
        self._late = late
        self._fail = fail

    # ------------------------------------------------------------------------------------------ messages

    def feed(self, message: Feed) -> None:
        session = self._sessions.get(message.session)
        if session is None:
            self._late()
        elif message.request:
            self._feed_request(session, message)
        elif (live := session.live.get(message.stream)) is not None:
            self._feed_session(session, live, message)
        else:
            self._late()

    def commit(self, message: Commit) -> None:
        session = self._sessions.get(message.session)
        if session is None:
            self._late()
            return
        if message.request and message.request not in session.requests:
            if not session.hold(message):
                self._late()
            return
        for request in list(session.requests.values()):
            if message.request in {"", request.name}:
                self._each_inlet(request, message.stream, lambda buffer, _: buffer.end(message.upto))

    def credit(self, message: Credit) -> None:
        session = self._sessions.get(session_of(message.request))
        request = session.requests.get(message.request) if session is not None else None
        if request is None:
            if session is None or not session.hold(message):
                self._late()
            return
        request.played = max(request.played, message.played)
        if message.upto > request.credit.get(message.output, 0):
            request.credit[message.output] = message.upto
            for partition in list(request.cursors):
                self._ready.refresh(request, partition)

    # ------------------------------------------------------------------------------------------ a request begins

    def open_inlets(self, request: RequestState) -> None:
        """The buffers of all streams that end in the request's partitions here; live ones begin to listen."""
        session = request.session
        family = session.family
        for (stream, partition), inlet in family.inlets.items():
            if partition not in request.partitions or partition not in session.here:
                continue
            edge = inlet.edge
            live = session.live.get(stream) if inlet.live else None
            start = request.positions.get(stream, live.history.stop) if live else 0
            request.buffers[(stream, partition)] = StreamBuffer(
                edge.policy,
                edge.bound,
                edge.items,
                stream=stream,
                start=start,
                full=family.live[stream].full if inlet.live else "wait",
            )
            if live is not None:
                live.listeners.append((request.name, partition))
                first = max(start, live.history.start)
                if first < live.history.stop:
                    past = live.history.slice(first, live.history.stop)
                    self._put(request, stream, partition, Feed(session.name, "", stream, first, past, rows=True))

    def give(self, request: RequestState, partition: str, name: str, value: Any) -> None:
        """Put a task input into a walk: as it is, or the slice of a live stream that it names, when it has come."""
        if not isinstance(value, Slice):
            request.cursors[partition].put(name, value)
            return
        live = request.session.live.get(value.stream)
        if live is None:
            raise Rejected(f"input {name}: no live stream {value.stream!r} here", code="unknown_stream", param=name)
        if live.history.ready(value.stop):
            request.cursors[partition].put(name, live.history.slice(value.start, value.stop))
        else:
            live.wants.append(Want(value, request.name, partition, name))

    # ------------------------------------------------------------------------------------------ inside

    def _feed_session(self, session: SessionState, live: LiveStream, message: Feed) -> None:
        try:
            live.history.put(message.index, _rows(message))
        except Rejected as wrong:
            for name in {name for name, _ in live.listeners}:
                self._fail(session.requests[name], message.stream, wrong)
            return
        for name, partition in list(live.listeners):
            if (request := session.requests.get(name)) is not None:  # it may have failed where it listens else
                self._put_or_fail(request, message.stream, partition, message)
        wants, live.wants = live.wants, []
        for want in wants:
            request = session.requests.get(want.request)
            if request is None:
                continue
            try:
                self.give(request, want.partition, want.name, want.slice)
                self._ready.refresh(request, want.partition)
            except Rejected as wrong:
                self._fail(request, want.name, wrong)

    def _feed_request(self, session: SessionState, message: Feed) -> None:
        request = session.requests.get(message.request)
        if request is None:
            if not session.hold(message):
                self._late()
            return
        live = session.family.live.get(message.stream)
        fed = _fed_by_client(request, message.stream) if live is not None and live.scope == "request" else []
        for partition in fed:
            self._put_or_fail(request, message.stream, partition, message)
        if not fed:
            self._late()

    def _put_or_fail(self, request: RequestState, stream: str, partition: str, message: Feed) -> None:
        try:
            self._put(request, stream, partition, message)
        except Rejected as wrong:
            self._fail(request, stream, wrong)

    def _put(self, request: RequestState, stream: str, partition: str, message: Feed) -> None:
        buffer = request.buffers[(stream, partition)]
        if message.rows:
            _rows(message)
        buffer.put(message.index, message.value, rows=message.rows, cut=message.cut, now=self._ready.now)
        self._ready.refresh(request, partition)

    def _each_inlet(
        self, request: RequestState, stream: str, change: Callable[[StreamBuffer, RequestState], None]
    ) -> None:
        for partition in _fed_by_client(request, stream):
            try:
                change(request.buffers[(stream, partition)], request)
                self._ready.refresh(request, partition)
            except Rejected as wrong:
                self._fail(request, stream, wrong)
                return


def _fed_by_client(request: RequestState, stream: str) -> list[str]:
    """Partitions of the request that take the stream from its client: none where a node of the request feeds it."""
    inlets = request.session.family.inlets
    return [
        partition
        for name, partition in request.buffers
        if name == stream and (inlet := inlets[(name, partition)]).live and inlet.makers.isdisjoint(request.partitions)
    ]


def _rows(message: Feed) -> np.ndarray:
    """The message's items as rows [n, …]. Raises Rejected if they are no arrays: nothing else is kept item by item."""
    value = message.value
    if not isinstance(value, np.ndarray) or (message.rows and value.ndim == 0):
        kind = type(value).__name__
        raise Rejected(f"stream {message.stream}: items must be arrays, got {kind}", param=message.stream)
    return value if message.rows else value[None]
