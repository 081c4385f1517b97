"""The conductor as pure code: messages in, (receiver, message) out. No sockets, no torch; time is an argument.

It is told of walks, never of tokens or chunks. Sessions and requests it does not know get no answer and leave nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from mstar.bus.patience import ENDLESS, Patience
from mstar.conductor.records import Request, Session
from mstar.conductor.recovery import Recovery
from mstar.conductor.waiting import Held
from mstar.conductor.workers import Workers
from mstar.graph.declare import Graph, Task
from mstar.graph.describe import describe
from mstar.messages import (
    Answer,
    Ask,
    BeginRequest,
    BeginWalk,
    CloseSession,
    EndRequest,
    Interrupt,
    Message,
    OpenSession,
    Progress,
    Refused,
    ReopenSession,
    RequestEnded,
    SessionClosed,
    SessionOpened,
    StartRequest,
    StepFailed,
    WalkDone,
    WorkerExited,
    WorkerReady,
    session_of,
)
from mstar.placement import Placed

Out: TypeAlias = list[tuple[str, Message]]

AWAY = 1 << 30
"""Sessions that a worker which is being replaced counts as having."""


class Conductor:
    """`graphs` and `placed` by family name; `patience` says when a worker that stands still is taken for lost."""

    def __init__(self, graphs: Mapping[str, Graph], placed: Mapping[str, Placed], patience: Patience = ENDLESS) -> None:
        self._graphs = graphs
        self._placed = placed
        self._then = {
            (name, partition.name, walk.name): walk.then
            for name, graph in graphs.items()
            for partition in graph.partitions
            for walk in partition.walks
        }
        self._tasks = {(name, task.name): task for name, graph in graphs.items() for task in graph.tasks}
        self._sessions: dict[str, Session] = {}
        self._requests: dict[str, Request] = {}
        self._history = {
            name: {live.name: max(live.history, 1) for live in graph.live if live.scope == "session"}
            for name, graph in graphs.items()
        }
        self._epochs = 0
        names = {worker for each in placed.values() for worker in each.workers}
        hosted = {name: frozenset(f for f, each in placed.items() if name in each.workers) for name in names}
        self._workers = Workers(hosted, patience)
        self._recovery = Recovery(
            self._workers,
            patience,
            self._sessions,
            self._requests,
            lambda why: self._end(why.request, "failed", why),
            self._again,
        )
        self.counters = {"sessions": 0, "requests": 0, "walks": 0, "messages": 0, "refused": 0}
        """`messages`: besides heartbeats and questions."""

    def handle(self, message: Message, now: float) -> Out:
        """What to send, to whom, after `message` came at `now` (monotonic seconds)."""
        self.counters["messages"] += not isinstance(message, Progress | Ask)
        match message:
            case OpenSession():
                return self._open(message, now)
            case CloseSession(session=session):
                return self._close(session)
            case StartRequest():
                return self._start(message, now)
            case WalkDone():
                return self._walk_done(message)
            case Ask():
                return [(message.client, Answer(message.ask, "conductor", self._answer(message, now)))]
            case WorkerReady() | Progress() | WorkerExited():
                return self._recovery.heard(message, now)
            case ReopenSession():
                return self._recovery.reopen(message, now)
            case _:
                return self._ended_by(message)

    def tick(self, now: float) -> Out:
        """What to send, to whom, because of the time; to be called about once a second."""
        return self._recovery.tick(now)

    def _again(self, held: Held, now: float) -> Out:
        return self._open(held, now) if isinstance(held, OpenSession) else self._start(held, now)

    def _ended_by(self, message: Message) -> Out:
        match message:
            case Interrupt(request=request):
                return self._interrupt(request)
            case StepFailed(request=request):
                return self._end(request, "failed", message)
            case _:
                raise TypeError(f"the conductor does not take {type(message).__name__}")

    # ------------------------------------------------------------------------------------------ sessions

    def _open(self, message: OpenSession, now: float) -> Out:
        placed = self._placed.get(message.family)
        if placed is None:
            return self._refuse(
                message.client, message.session, "", "unknown_family", f"no family {message.family!r} is served"
            )
        if message.session in self._sessions:
            return self._refuse(message.client, message.session, "", "session_exists", "a session of this name is open")
        pins = placed.pins(self._load())
        seating = placed.seat(pins)
        if any(self._workers.loading(worker) for worker in seating.workers):
            return self._refuse(message.client, message.session, "", "not_ready", "the workers are still loading")
        if not all(self._workers.up(worker) for worker in seating.workers):
            return self._recovery.hold(message, message.client, now)
        self.counters["sessions"] += 1
        opened = SessionOpened(
            message.session,
            message.family,
            message.client,
            seating.workers,
            live=seating.live,
            outputs=seating.outputs,
            settings=message.settings,
            trace=message.trace,
            pins=pins,
            history=self._history[message.family],
        )
        self._sessions[message.session] = Session(message.family, message.client, seating, opened)
        return [(worker, opened) for worker in seating.workers]

    def _load(self) -> Counter[str]:
        """Sessions pinned to each worker; one that is not there is taken last."""
        load = Counter(worker for session in self._sessions.values() for worker in session.seating.pins)
        load.update({worker: AWAY for worker in self._workers if not self._workers.up(worker)})
        return load

    def _close(self, name: str) -> Out:
        self._recovery.forget(name)
        session = self._sessions.pop(name, None)
        if session is None:
            return []
        for request in session.requests:
            del self._requests[request]
        return [(worker, SessionClosed(name)) for worker in session.seating.workers]

    # ------------------------------------------------------------------------------------------ requests

    def _start(self, message: StartRequest, now: float) -> Out:
        session = self._sessions.get(message.session)
        if session is None:
            client = self._recovery.opening(message.session)
            return self._recovery.hold(message, client, now) if client else []
        task = self._tasks.get((session.family, message.task))
        wrong = self._wrong(session.family, task, message)
        if wrong is not None or task is None:
            # Workers may hold live items that were sent right behind the request.
            out: Out = [(worker, EndRequest(message.request)) for worker in session.seating.workers]
            return out + self._refuse(session.client, message.session, message.request, *(wrong or ("", "")))
        workers = session.seating.of(task.start)
        if not session.away.isdisjoint(workers):
            return self._recovery.hold(message, session.client, now)
        self._epochs += 1
        self.counters["requests"] += 1
        begin = BeginRequest(
            message.session,
            message.request,
            task.name,
            self._epochs,
            message.inputs,
            message.settings,
            message.positions,
        )
        self._requests[message.request] = Request(message.session, task, workers, dict(task.start))
        session.requests.add(message.request)
        out = [(worker, begin) for worker in workers]
        for partition, walk in task.start.items():
            self.counters["walks"] += 1
            out.append((session.seating.homes[partition], BeginWalk(message.request, partition, walk)))
        return out

    def _wrong(self, family: str, task: Task | None, message: StartRequest) -> tuple[str, str, str] | None:
        """Why a request can not be taken: code, sentence, parameter."""
        if task is None:
            known = ", ".join(sorted(name for each, name in self._tasks if each == family))
            return "unknown_task", f"family {family} has no task {message.task!r}; it has {known}", "task"
        for name in message.inputs:
            if name not in task.inputs:
                known = ", ".join(task.inputs) or "none"
                return "unknown_input", f"task {task.name} takes no input {name!r}; it takes {known}", name
        for name in task.inputs:
            if name not in message.inputs:
                return "missing_input", f"task {task.name} needs the input {name!r}", name
        return None

    def _walk_done(self, message: WalkDone) -> Out:
        request = self._requests.get(message.request)
        if request is None or request.running.get(message.partition) != message.walk:
            return []
        session = self._sessions[request.session]
        for output, count in message.emitted.items():
            request.emitted[output] = max(request.emitted.get(output, 0), count)
        following = self._then[(session.family, message.partition, message.walk)]
        if following and not message.stopped:
            request.running[message.partition] = following
            self.counters["walks"] += 1
            worker = session.seating.homes[message.partition]
            return [(worker, BeginWalk(message.request, message.partition, following))]
        del request.running[message.partition]
        return [] if request.running else self._end(message.request, "done")

    def _interrupt(self, name: str) -> Out:
        session = session_of(name)
        known = self._sessions.get(session)
        client = known.client if known is not None else self._recovery.opening(session)
        if client and self._recovery.forget(session, name):  # it had not begun
            return [*self._recovery.unbegun(session, name), (client, RequestEnded(name, "cancelled"))]
        return self._end(name, "cancelled")

    def _end(self, name: str, status: str, why: StepFailed | None = None) -> Out:
        request = self._requests.pop(name, None)
        if request is None:
            return []
        session = self._sessions[request.session]
        session.requests.discard(name)
        out: Out = [(worker, EndRequest(name)) for worker in request.workers]
        ended = RequestEnded(name, status, emitted=request.emitted)
        if why is not None:
            ended = RequestEnded(name, status, why.node, why.cause, why.code, request.emitted, why.param)
        out.append((session.client, ended))
        return out

    def _refuse(self, client: str, session: str, request: str, code: str, text: str, param: str = "") -> Out:
        self.counters["refused"] += 1
        return [(client, Refused(session, request, code, text, param))]

    # ------------------------------------------------------------------------------------------ questions

    def _answer(self, message: Ask, now: float) -> Any:
        match message.what:
            case "census":
                return {
                    "sessions": len(self._sessions),
                    "requests": len(self._requests),
                    "waiting": len(self._recovery),
                }
            case "counters":
                return {
                    **self.counters,
                    "lost_requests": self._recovery.lost_requests,
                    "restarts": self._workers.restarts(),
                    "recovery_seconds": self._workers.recovery(),
                }
            case "workers":
                return self._workers.describe(now)
            case "graph":
                graph = self._graphs.get(message.family)
                return None if graph is None else describe(graph)
            case _:
                return None

    @property
    def workers(self) -> Iterable[str]:
        return self._workers
