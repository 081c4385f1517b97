"""The party that opens sessions, asks questions, and takes what comes back to whom it is for."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mstar.bus import Endpoint
from mstar.client.session import CONDUCTOR, Event, Request, Session
from mstar.clock import Clock, MonotonicClock
from mstar.errors import Rejected
from mstar.messages import (
    Answer,
    Ask,
    CloseSession,
    Emission,
    Message,
    OpenSession,
    Refused,
    RequestEnded,
    SessionClosed,
    SessionOpened,
    Traced,
    WorkerDown,
    WorkerUp,
    session_of,
)
from mstar.tensors import Value

__all__ = ["CONDUCTOR", "Client", "Event", "Request", "Session"]

OPEN_SECONDS = 600.0
"""How long a session may take to be opened. The conductor refuses one much sooner, and a dead conductor is noticed."""
CLOSING = 1024
"""Closed sessions whose workers may still have to say that they have freed everything."""


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
        self.lost = ""
        """Why there is no runtime any more."""
        self._asks: dict[int, tuple[str, Callable[[Value], None]]] = {}  # whom, then what
        self._closing: dict[str, _Closing] = {}  # sessions that were closed and may still hold something
        self.on_freed: Callable[[str, float], None] = lambda *_: None
        """Called with a closed session's id, and the seconds until no worker held anything of it any more."""
        self._numbers = itertools.count(1)
        self._prefix = secrets.token_hex(3)
        endpoint.on_arrival(self.receive)

    async def open(
        self, family: str, *, settings: Mapping[str, Any] | None = None, trace: bool = False, session: str | None = None
    ) -> Session:
        """Open a session and wait until its workers know it.

        Raises Rejected: unknown family, no capacity, or `not_ready` when that has not come about in `OPEN_SECONDS`.
        """
        opened = self.open_soon(family, settings=settings, trace=trace, session=session)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        opened.opening(future)
        try:
            if self.lost:
                raise Rejected(self.lost, code="not_ready")
            async with asyncio.timeout(OPEN_SECONDS):
                await future
        except TimeoutError:
            self.close_session(opened)
            raise Rejected("The workers do not answer.", code="not_ready") from None
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
        """`what`: see `mstar.messages.Ask`; `of`: the conductor or a worker's name. None from one that is lost."""
        future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()

        def answered(value: Value) -> None:
            if not future.done():  # whoever asked may have stopped waiting in this very moment
                future.set_result(value)

        number = self.ask_then(what, answered, of=of, family=family, session=session)
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
        if self.lost:
            then(None)
            return number
        self._asks[number] = (of, then)
        self.send(of, Ask(what, self._endpoint.name, number, family, session))
        return number

    def close_session(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self.send(CONDUCTOR, CloseSession(session.id))
            self._closing[session.id] = _Closing(self.clock.now(), set(session.workers))
            if len(self._closing) > CLOSING:
                del self._closing[next(iter(self._closing))]
            session.deliver(SessionClosed(session.id))

    def send(self, to: str, message: Message) -> None:
        if not self.lost:
            self._endpoint.send(to, message)

    def lose(self, cause: str) -> None:
        """The conductor is dead: all sessions and requests end with `runtime_lost`, nothing can be begun."""
        self.lost = cause
        for session in list(self._sessions.values()):
            session.runtime_lost(cause)
        self._unanswered()

    def _unanswered(self, worker: str = "") -> None:
        """Nobody will answer what was asked (of a worker)."""
        for number in [number for number, (of, _) in self._asks.items() if worker in ("", of)]:
            _, then = self._asks.pop(number)
            then(None)

    def receive(self) -> None:
        """Takes what has arrived to the sessions and requests it is for; late messages of closed ones are dropped."""
        for message in self._endpoint.receive():
            match message:
                case Answer(ask=number, value=value):
                    _, then = self._asks.pop(number, ("", None))
                    if then is not None:
                        then(value)
                case Emission(request=name) | RequestEnded(request=name):
                    self._to(session_of(name), message)
                case SessionClosed(session=name, worker=worker) if worker:
                    self._freed(name, worker)
                case SessionOpened() | SessionClosed() | Traced() | Refused():
                    self._to(message.session, message)
                case WorkerDown(worker=worker, cause=cause):
                    self._down(worker, cause)
                case WorkerUp(worker=worker, life=life):
                    for known in list(self._sessions.values()):
                        known.worker_up(worker, life)
                case _:
                    raise TypeError(f"a client does not take {type(message).__name__}")

    def _down(self, worker: str, cause: str) -> None:
        self._endpoint.forget(worker)
        for session in list(self._sessions.values()):
            session.worker_down(worker, cause)
        self._unanswered(worker)
        for name in list(self._closing):
            self._freed(name, worker)

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
