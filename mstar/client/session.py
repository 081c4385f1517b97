"""Sessions and requests as their owner sees them: feed, start, credit, interrupt, close, and what comes back.

All calls that send return at once. A `Request` is an async iterator of `Emission`s that ends with its one
`RequestEnded`; the same events can be taken without a loop by `drain`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from mstar.client.courier import Courier
from mstar.clock import Clock
from mstar.errors import Rejected
from mstar.messages import (
    Commit,
    Credit,
    Emission,
    Feed,
    Interrupt,
    Message,
    Refused,
    RequestEnded,
    SessionClosed,
    SessionOpened,
    StartRequest,
    Traced,
)
from mstar.tensors import Value

CONDUCTOR = "conductor"

Event: TypeAlias = Emission | RequestEnded


def _ignored(_: object) -> None:
    """Nobody looks on."""


class Party(Protocol):
    """Who opened a session; see `mstar.client.client.Client`."""

    @property
    def lost(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def on_first(self) -> Callable[[Request, str, float], None]: ...

    def send(self, to: str, message: Message) -> None: ...

    def close_session(self, session: Session) -> None: ...


class Request:
    """One request in progress. Events come in order; after `interrupt` nothing but the terminal event comes."""

    def __init__(self, client: Party, session: Session, request: str, task: str) -> None:
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
        self.session.credit(Credit(self.id, output, upto, played))

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
        interrupt = Interrupt(self.id, heard)
        self.session.on_call(interrupt)
        self._client.send(CONDUCTOR, interrupt)

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
            self.session.on_event(event)
        end = self._end
        if end and (self._interrupted or end.status != "done" or self._has_all(end)):
            self._events.append(end)
            self.session.on_event(end)
            self.session.forget(self.id)
        self._wake.set()

    def _has_all(self, end: RequestEnded) -> bool:
        return all(self._got.get(name, 0) >= n for name, n in end.emitted.items())

    def lose(self, worker: str, cause: str) -> None:
        """A worker is gone: what it had still to say of a request that is done will not come."""
        if self._end and self.ended is None and worker in self.session.workers:
            text = f"{cause}; it is being replaced"
            self.deliver(RequestEnded(self.id, "failed", "", text, "worker_lost", self._end.emitted))


class Session:
    """One open session: its live streams and its requests. It outlives the workers it runs on."""

    def __init__(self, client: Party, session: str, family: str) -> None:
        self.id = session
        self.family = family
        self.workers: tuple[str, ...] = ()
        self.outputs: Mapping[str, tuple[str, ...]] = {}
        self.on_trace: Callable[[Traced], None] | None = None
        self.on_call: Callable[[StartRequest | Feed | Commit | Credit | Interrupt], None] = _ignored
        """Called with everything that is asked of the session (see `mstar.client.calls`)."""
        self.on_event: Callable[[Event], None] = _ignored
        """Called with everything that its requests hand out."""
        self._live: dict[str, tuple[str, ...]] = {}
        self._courier = Courier(session, self._send)
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
        self._check(stream)
        feed = Feed(self.id, request, stream, index, value, rows, cut)
        self.on_call(feed)
        if not self._courier.feed(feed):
            self._give_up(request)

    def commit(self, stream: str, upto: int, *, request: str = "") -> None:
        """The live stream ends after `upto` items."""
        self._check(stream)
        commit = Commit(self.id, request, stream, upto)
        self.on_call(commit)
        if not self._courier.feed(commit):
            self._give_up(request)

    def credit(self, credit: Credit) -> None:
        """To all workers that emit the output."""
        self.on_call(credit)
        for worker in self.outputs.get(credit.output, ()):
            self._courier.send(worker, credit)  # one that is lost is made good by the next

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
        start = StartRequest(self.id, request.id, task, inputs or {}, settings or {}, positions or {})
        self.on_call(start)
        if self._client.lost:
            request.deliver(RequestEnded(request.id, "failed", "", self._client.lost, "runtime_lost"))
            return request
        self._client.send(CONDUCTOR, start)
        return request

    async def close(self) -> None:
        """Ends all of the session's requests and frees everything; safe to call twice."""
        self._client.close_session(self)

    @property
    def requests(self) -> Mapping[str, Request]:
        return self._requests

    def forget(self, request: str) -> None:
        self._requests.pop(request, None)

    def _send(self, to: str, message: Message) -> None:
        self._client.send(to, message)

    def _check(self, stream: str) -> None:
        if stream not in self._live:
            text = f"family {self.family} has no live stream {stream!r}"
            raise Rejected(text, code="unknown_stream", param=stream)

    def _give_up(self, request: str) -> None:
        """A request waits for a worker with more than may wait."""
        waiting = self._requests.get(request)
        if waiting is not None:
            self._client.send(CONDUCTOR, Interrupt(request))
            text = "A worker is being replaced, and too much waits for it."
            waiting.deliver(RequestEnded(request, "failed", "", text, "not_ready"))

    # ------------------------------------------------------------------------------------------ lost workers

    def worker_down(self, worker: str, cause: str) -> None:
        """Called by the client: a worker is gone; its requests end by themselves."""
        if self.workers and worker not in self.workers:
            return
        self._courier.lose(worker)
        for request in list(self._requests.values()):
            request.lose(worker, cause)

    def worker_up(self, worker: str, life: int) -> None:
        """Called by the client: a worker is there again and does not know the session."""
        if not self.workers or worker in self.workers:
            self._client.send(CONDUCTOR, self._courier.reopening(worker, life))

    def runtime_lost(self, cause: str) -> None:
        """Called by the client: there is nobody left to answer."""
        for request in list(self._requests.values()):
            request.deliver(RequestEnded(request.id, "failed", "", cause, "runtime_lost"))
        self._refused(Rejected(cause, code="not_ready"))

    def _refused(self, why: Rejected) -> None:
        if self._opened and not self._opened.done():
            self._opened.set_exception(why)

    # ------------------------------------------------------------------------------------------ what comes back

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
                self._refused(Rejected(message.message, code=message.code, param=message.param or None))
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
            self._courier.opened(message)
        self._waiting.discard(message.worker)
        self._courier.reopened(message.worker, self._requests.__contains__)
        if not self._waiting and self._opened and not self._opened.done():
            self._opened.set_result(None)
