"""What follows when a worker is lost, and when it is there again (pure).

Lost: the launcher is asked for another process, all who talk with the worker are told, its requests end with
`worker_lost`. There again: each client says from where it feeds its live streams, the session is opened anew on the
worker, and what was asked of it meanwhile begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from mstar.bus.patience import Patience
from mstar.conductor.records import Request, Session
from mstar.conductor.waiting import Held, Waiting
from mstar.conductor.workers import Lost, Workers
from mstar.messages import (
    LAUNCHER,
    EndRequest,
    GiveUp,
    Message,
    OpenSession,
    Progress,
    Refused,
    ReopenSession,
    ReplaceWorker,
    StartRequest,
    StepFailed,
    WorkerDown,
    WorkerExited,
    WorkerReady,
    WorkerUp,
)

Out: TypeAlias = list[tuple[str, Message]]


class Recovery:
    """`end` fails a request; `again` takes up a message that was held."""

    def __init__(
        self,
        workers: Workers,
        patience: Patience,
        sessions: Mapping[str, Session],
        requests: Mapping[str, Request],
        end: Callable[[StepFailed], Out],
        again: Callable[[Held, float], Out],
    ) -> None:
        self.lost_requests = 0
        self._workers = workers
        self._sessions = sessions
        self._requests = requests
        self._end = end
        self._again = again
        self._waiting = Waiting(patience.waiting)

    def __len__(self) -> int:
        """Messages that wait."""
        return len(self._waiting)

    def heard(self, message: WorkerReady | Progress | WorkerExited, now: float) -> Out:
        """News of a worker."""
        match message:
            case Progress():
                self._workers.progress(message, now)
            case WorkerReady(worker=worker):
                seconds = self._workers.ready(message, now)
                if seconds is not None:
                    return self._up(worker, seconds, now)
            case WorkerExited():
                lost = self._workers.exited(message)
                if lost is not None:
                    return self._lost(lost, now)
        return []

    def tick(self, now: float) -> Out:
        """Time has passed."""
        out: Out = []
        for lost in self._workers.tick(now):
            out += self._lost(lost, now)
        for late in self._waiting.overdue(now):
            out += self._refuse(late.message, late.client)
        return out

    # ------------------------------------------------------------------------------------------ waiting

    def hold(self, message: Held, client: str, now: float) -> Out:
        """Keep a message until all workers of its session know it; one too many is refused."""
        return [] if self._waiting.hold(message, client, now) else self._refuse(message, client)

    def opening(self, session: str) -> str:
        """The client whose session waits to be opened; "" if there is none of that name."""
        waiting = (each for each in self._waiting if isinstance(each.message, OpenSession))
        return next((each.client for each in waiting if each.message.session == session), "")

    def forget(self, session: str, request: str = "") -> bool:
        """Nobody wants what waits of a session (of one request of it) → whether there was any."""

        def meant(held: Held) -> bool:
            return held.session == session and (not request or getattr(held, "request", "") == request)

        return bool(self._waiting.take(meant))

    def _refuse(self, held: Held, client: str) -> Out:
        request = held.request if isinstance(held, StartRequest) else ""
        text = "A worker is being replaced and was not ready in time."
        return [*self.unbegun(held.session, request), (client, Refused(held.session, request, "not_ready", text))]

    def unbegun(self, session: str, request: str) -> Out:
        """A request will not begin: workers let go of what came for it early."""
        known = self._sessions.get(session)
        return [(worker, EndRequest(request)) for worker in known.opened.workers] if known is not None else []

    # ------------------------------------------------------------------------------------------ lost

    def _lost(self, lost: Lost, now: float) -> Out:
        name = lost.worker
        cause = f"{name} {lost.cause}"
        life = self._workers.replace(name, now)
        replaced = ReplaceWorker(name, life, cause) if life is not None else GiveUp(cause)
        clients = set()
        for session in self._sessions.values():
            if name in session.opened.workers:
                session.away.add(name)
                clients.add(session.client)
        others = [other for other in self._workers if other != name]
        out: Out = [(LAUNCHER, replaced)]
        out += [(party, WorkerDown(name, cause)) for party in (*sorted(clients), *others)]
        for request in [request for request, each in self._requests.items() if name in each.workers]:
            self.lost_requests += 1
            out += self._end(StepFailed(request, "", f"{cause}; it is being replaced", "worker_lost"))
        return [(to, message) for to, message in out if to != name]

    # ------------------------------------------------------------------------------------------ there again

    def _up(self, name: str, seconds: float, now: float) -> Out:
        clients = {session.client for session in self._sessions.values() if name in session.away}
        up = WorkerUp(name, self._workers.life(name), seconds)
        out: Out = [(party, up) for party in (LAUNCHER, *sorted(clients))]
        for held in self._waiting.take(lambda each: each.session not in self._sessions):
            out += self._again(held, now)
        return out

    def reopen(self, message: ReopenSession, now: float) -> Out:
        """A client says from where it will feed a worker that is there again."""
        session = self._sessions.get(message.session)
        name = message.worker
        if session is None or name not in session.away or not self._workers.up(name):
            return []
        if message.life != self._workers.life(name):
            return []
        session.away.discard(name)
        out: Out = [(name, msgspec.structs.replace(session.opened, first=message.first))]
        if not session.away:
            for held in self._waiting.take(lambda each: each.session == message.session):
                out += self._again(held, now)
        return out
