"""Sessions and requests as their owner sees them: open, feed, start, credit, interrupt, close, and what comes back.

All calls that send return at once. A `Request` is an async iterator of `Emission`s that ends with its one
`RequestEnded`; the same events can be taken without a loop by `drain`.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mstar.bus import Endpoint
from mstar.clock import Clock, MonotonicClock
from mstar.errors import Rejected
from mstar.messages import (
    Answer,
    Ask,
    CloseSession,
    Commit,
    Credit,
    Emission,
    Feed,
    Interrupt,
    Message,
    OpenSession,
    Refused,
    RequestEnded,
    SessionClosed,
    SessionOpened,
    StartRequest,
    Traced,
    session_of,
)
from mstar.tensors import Value

CONDUCTOR = "conductor"
CLOSING = 1024
"""Closed sessions whose workers may still have to say that they have freed everything."""

Event: TypeAlias = Emission | RequestEnded


class Request:
    """One request in progress. Events come in order; after `interrupt` nothing but the terminal event comes."""

    def __init__(self, client: Client, session: Session, request: str, task: str) -> None:
        self.id = request
        self.task = task
        self.session = session
        self.ended: RequestEnded | None = None
        self._client = client
        self._started = client.clock.now()
        self._events: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._got: dict[str, int] = {}
        self._end: RequestEnded | None = None
        self._interrupted = False

    def credit(self, output: str, upto: int, played: int = 0) -> None:
        """The listener takes `output` up to the absolute weight `upto` (audio: samples); `played` samples are heard."""
        for worker in self.session.outputs.get(output, ()):
            self._client.send(worker, Credit(self.id, output, upto, played))

    def feed(self, stream: str, index: int, value: Value, *, rows: bool = False, cut: bool = False) -> None:
        """Items of a live stream that belongs to this request."""
        self.session.feed(stream, index, value, rows=rows, cut=cut, request=self.id)

    def commit(self, stream: str, upto: int) -> None:
        """The request's live stream ends after `upto` items."""
        self.session.commit(stream, upto, request=self.id)

    def interrupt(self, heard: int | None = None) -> None:
        """End the request's epoch; no emission is delivered after this call."""
        if self._interrupted or self.ended or self._end:
            return
        self._interrupted = True
        self._events.clear()
        self._client.send(CONDUCTOR, Interrupt(self.id, heard))

    def drain(self) -> list[Event]:
        """What has come and was not taken yet; never waits."""
        taken = list(self._events)
        self._events.clear()
        for event in taken:
            if isinstance(event, RequestEnded):
                self.ended = event
        return taken

    async def __aiter__(self) -> AsyncIterator[Event]:
        while self.ended is None:
            while not self._events:
                self._wake.clear()
                await self._wake.wait()
            event = self._events.popleft()
            if isinstance(event, RequestEnded):
                self.ended = event
            yield event

    def deliver(self, event: Event) -> None:
        """Called by the client for each arriving event."""
        if isinstance(event, RequestEnded):
            self._end = event
        elif not self._interrupted:
            if event.output not in self._got:
                self._client.on_first(self, event.output, self._client.clock.now() - self._started)
            self._got[event.output] = self._got.get(event.output, 0) + 1
            self._events.append(event)
        end = self._end
        if end and (end.status != "done" or all(self._got.get(name, 0) >= n for name, n in end.emitted.items())):
            self._events.append(end)
            self.session.forget(self.id)
        self._wake.set()


class Session:
    """One open session: its live streams and its requests."""

    def __init__(self, client: Client, session: str, family: str) -> None:
        self.id = session
        self.family = family
        self.workers: tuple[str, ...] = ()
        self.outputs: Mapping[str, tuple[str, ...]] = {}
        self.on_trace: Callable[[Traced], None] | None = None
        self._live: dict[str, tuple[str, ...]] = {}
        self._client = client
        self._requests: dict[str, Request] = {}
        self._numbers = itertools.count()
        self._opened: asyncio.Future[None] | None = None
        self._waiting: set[str] = set()

    def feed(
        self, stream: str, index: int, value: Value, *, rows: bool = False, cut: bool = False, request: str = ""
    ) -> None:
        """Items [index, index + n) of a live stream, sent straight to the workers that take it.

        `value` is one item, or with `rows` an array of n items. Raises Rejected for a stream the family does not have.
        """
        for worker in self._takers(stream):
            self._client.send(worker, Feed(self.id, request, stream, index, value, rows, cut))

    def commit(self, stream: str, upto: int, *, request: str = "") -> None:
        """The live stream ends after `upto` items."""
        for worker in self._takers(stream):
            self._client.send(worker, Commit(self.id, request, stream, upto))

    def start(
        self,
        task: str,
        inputs: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        positions: Mapping[str, int] | None = None,
    ) -> Request:
        """Ask for a task. A refusal comes as the request's RequestEnded(status="failed", code=…)."""
        request = Request(self._client, self, f"{self.id}.{next(self._numbers)}", task)
        self._requests[request.id] = request
        self._client.send(
            CONDUCTOR, StartRequest(self.id, request.id, task, inputs or {}, settings or {}, positions or {})
        )
        return request

    async def close(self) -> None:
        """Ends all of the session's requests and frees everything; safe to call twice."""
        self._client.close_session(self)

    @property
    def requests(self) -> Mapping[str, Request]:
        return self._requests

    def forget(self, request: str) -> None:
        self._requests.pop(request, None)

    def _takers(self, stream: str) -> tuple[str, ...]:
        try:
            return self._live[stream]
        except KeyError:
            raise Rejected(
                f"family {self.family} has no live stream {stream!r}", code="unknown_stream", param=stream
            ) from None

    def deliver(self, message: Message) -> None:
        """Called by the client for each message of this session."""
        match message:
            case Emission() | RequestEnded():
                request = self._requests.get(message.request)
                if request is not None:
                    request.deliver(message)
            case Refused(request=name) if name:
                request = self._requests.get(name)
                if request is not None:
                    request.deliver(RequestEnded(name, "failed", "", message.message, message.code, {}, message.param))
            case Refused():
                if self._opened and not self._opened.done():
                    self._opened.set_exception(
                        Rejected(message.message, code=message.code, param=message.param or None)
                    )
            case SessionOpened():
                self._open(message)
            case SessionClosed():
                for request in list(self._requests.values()):
                    request.deliver(RequestEnded(request.id, "failed", "", "the session was closed", "session_closed"))
            case Traced() if self.on_trace:
                self.on_trace(message)
            case _:
                pass

    def opening(self, future: asyncio.Future[None] | None) -> None:
        self._opened = future

    def _open(self, message: SessionOpened) -> None:
        if not self.workers:
            self.workers = message.workers
            self._live = dict(message.live)
            self.outputs = dict(message.outputs)
            self._waiting = set(message.workers)
        self._waiting.discard(message.worker)
        if not self._waiting and self._opened and not self._opened.done():
            self._opened.set_result(None)


@dataclass(frozen=True, slots=True)
class _Closing:
    """A session closed at `since`; `workers` have not said yet that they have freed it."""

    since: float
    workers: set[str]


class Client:
    """A party that opens sessions. One per server process; `endpoint` is its end of the bus."""

    def __init__(self, endpoint: Endpoint, clock: Clock | None = None) -> None:
        self.clock = clock or MonotonicClock()
        self.on_first: Callable[[Request, str, float], None] = lambda *_: None
        """Called with a request, an output and the seconds that its first emission took."""
        self._endpoint = endpoint
        self._sessions: dict[str, Session] = {}
        self._asks: dict[int, Callable[[Value], None]] = {}
        self._closing: dict[str, _Closing] = {}  # sessions that were closed and may still hold something
        self.on_freed: Callable[[str, float], None] = lambda *_: None
        """Called with a closed session's id, and the seconds until no worker held anything of it any more."""
        self._numbers = itertools.count(1)
        self._prefix = secrets.token_hex(3)
        endpoint.on_arrival(self.receive)

    async def open(
        self, family: str, *, settings: Mapping[str, Any] | None = None, trace: bool = False, session: str | None = None
    ) -> Session:
        """Open a session and wait until its workers know it. Raises Rejected (unknown family, no capacity)."""
        opened = self.open_soon(family, settings=settings, trace=trace, session=session)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        opened.opening(future)
        try:
            await future
        except BaseException:
            self.close_session(opened)
            raise
        return opened

    def open_soon(
        self, family: str, *, settings: Mapping[str, Any] | None = None, trace: bool = False, session: str | None = None
    ) -> Session:
        """Open without waiting; for callers that turn the bus themselves."""
        name = session or f"{self._prefix}-{next(self._numbers)}"
        opened = Session(self, name, family)
        self._sessions[name] = opened
        self.send(CONDUCTOR, OpenSession(name, family, self._endpoint.name, settings or {}, trace))
        return opened

    async def ask(self, what: str, *, of: str = CONDUCTOR, family: str = "", session: str = "") -> Value:
        """`what`: see `mstar.messages.Ask`; `of`: the conductor or a worker's name."""
        future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        number = self.ask_then(what, future.set_result, of=of, family=family, session=session)
        try:
            return await future
        finally:
            self._asks.pop(number, None)

    def ask_then(
        self,
        what: str,
        then: Callable[[Value], None],
        *,
        of: str = CONDUCTOR,
        family: str = "",
        session: str = "",
    ) -> int:
        """As `ask`, with a callback in place of waiting."""
        number = next(self._numbers)
        self._asks[number] = then
        self.send(of, Ask(what, self._endpoint.name, number, family, session))
        return number

    def close_session(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self.send(CONDUCTOR, CloseSession(session.id))
            self._closing[session.id] = _Closing(self.clock.now(), set(session.workers))
            if len(self._closing) > CLOSING:  # a worker that was lost says nothing
                del self._closing[next(iter(self._closing))]
            session.deliver(SessionClosed(session.id))

    def send(self, to: str, message: Message) -> None:
        self._endpoint.send(to, message)

    def receive(self) -> None:
        """Takes what has arrived to the sessions and requests it is for; late messages of closed ones are dropped."""
        for message in self._endpoint.receive():
            match message:
                case Answer(ask=number, value=value):
                    then = self._asks.pop(number, None)
                    if then is not None:
                        then(value)
                case Emission(request=name) | RequestEnded(request=name):
                    self._to(session_of(name), message)
                case SessionClosed(session=name, worker=worker) if worker:
                    self._freed(name, worker)
                case SessionOpened() | SessionClosed() | Traced() | Refused():
                    self._to(message.session, message)
                case _:
                    raise TypeError(f"a client does not take {type(message).__name__}")

    def _freed(self, session: str, worker: str) -> None:
        closing = self._closing.get(session)
        if closing is not None:
            closing.workers.discard(worker)
            if not closing.workers:
                del self._closing[session]
                self.on_freed(session, self.clock.now() - closing.since)

    def _to(self, session: str, message: Message) -> None:
        known = self._sessions.get(session)
        if known is not None:
            known.deliver(message)

    @property
    def sessions(self) -> Mapping[str, Session]:
        return self._sessions

    def close(self) -> None:
        for session in list(self._sessions.values()):
            self.close_session(session)
        self._endpoint.close()
