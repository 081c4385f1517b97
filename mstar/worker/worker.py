"""A worker as a state machine: messages in, steps out to the executor, outcomes in, messages out.

It holds no socket, thread or clock of its own: `handle` takes a message, `schedule` hands the next batch to the
executor, `collect` takes finished ones. Late messages for what has ended are dropped; those for what is about to begin
wait, bounded.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from mstar.bus import Endpoint
from mstar.clock import Clock
from mstar.engine.api import Engine
from mstar.errors import Rejected
from mstar.graph.cursor import Cursor
from mstar.messages import (
    Answer,
    Ask,
    BeginRequest,
    BeginWalk,
    Commit,
    Credit,
    EndRequest,
    Feed,
    Fire,
    Fired,
    Give,
    Image,
    Items,
    Message,
    Pace,
    Progress,
    Room,
    SessionClosed,
    SessionOpened,
    StepFailed,
    Stop,
    WorkerDown,
    session_of,
)
from mstar.streaming.history import History
from mstar.transport.api import Gone, Transport
from mstar.worker.account import Account, total
from mstar.worker.away import Away, Guests, Images, cargo
from mstar.worker.executor import Executor
from mstar.worker.hosted import Hosted
from mstar.worker.intake import Intake
from mstar.worker.links import Inlets, Outlets, sources_of
from mstar.worker.memory import MemoryQueue
from mstar.worker.outflow import Outflow
from mstar.worker.pacing import Pacing
from mstar.worker.ready import Ready, due_of
from mstar.worker.state import LiveStream, RequestState, SessionState, Told
from mstar.worker.steps import CONDUCTOR, Hands, Requests, Steps


class Worker:
    """`engines`: component → the engine that runs it; `limits`: component → largest batch."""

    def __init__(
        self,
        name: str,
        families: Mapping[str, Hosted],
        engines: Mapping[str, Engine],
        limits: Mapping[str, int],
        endpoint: Endpoint,
        clock: Clock,
        executor: Executor,
        transport: Transport,
    ) -> None:
        self.name = name
        self.stopped = False
        self._begun = 0
        self._lates = 0
        self._families = families
        self._engines = engines
        self._all_engines = list({id(engine): engine for engine in engines.values()}.values())
        self._endpoint = endpoint
        self._clock = clock
        self._executor = executor
        self._sessions: dict[str, SessionState] = {}
        self._ready = Ready(clock, limits)
        self._memory = MemoryQueue()
        self._intake = Intake(self._sessions, self._ready, self._late, self._reject)
        self._transport = transport
        self._parked: list[Told] = []  # messages whose arrays are on their way
        self._outlets = Outlets(endpoint, transport)
        self._inlets = Inlets(endpoint, transport, self._ready)
        self._pacing = Pacing(endpoint)
        self._guests = Guests(endpoint, transport, self._ready)
        self._images = Images(endpoint, transport, executor, engines, self._memory, clock, self._guests.admit_waiting)
        hands = Hands(
            Outflow(endpoint, self._ready, self._outlets, self._pacing),
            self._inlets,
            Away(endpoint, transport, self._guests, self._images),
            self._guests,
            self._images,
        )
        requests = Requests(self._find, self._sessions.__contains__, self._late, self._fail, self._reject)
        self._steps = Steps(name, engines, endpoint, clock, executor, self._ready, self._memory, hands, requests)
        self._account = Account(self._sessions, self._steps, self._ready, self._memory, hands, transport)

    # ------------------------------------------------------------------------------------------ messages

    def handle(self, message: Message) -> None:
        match message:
            case Feed():
                self._intake.feed(message)
            case Credit():
                self._credit(message)
            case Commit():
                self._intake.commit(message)
            case Items() | Room() | Pace() | Fire() | Fired() | Give() | Image():
                self._hear(message)
            case BeginWalk():
                self._begin_walk(message)
            case BeginRequest():
                self._begin_request(message)
            case EndRequest(request=name):
                self._end_request(name)
            case SessionOpened():
                self._open(message)
            case SessionClosed(session=name):
                self._close(name)
            case _:
                self._handle_seldom(message)

    def _handle_seldom(self, message: Message) -> None:
        match message:
            case Ask():
                self._answer(message)
            case WorkerDown(worker=name):
                self._endpoint.forget(name)
                self._transport.forget(name)
            case Stop():
                self.stopped = True
            case _:
                raise TypeError(f"a worker does not take {type(message).__name__}")

    def _open(self, message: SessionOpened) -> None:
        family = self._families[message.family]
        seating = family.placed.seat(message.pins)
        session = SessionState(message.session, family, seating, message.client, message.settings, message.trace)
        for name, takers in message.live.items():
            if self.name in takers and family.live[name].scope == "session":
                history = History(max(family.live[name].history, 1), message.first.get(name, 0))
                session.live[name] = LiveStream(history)
        self._sessions[message.session] = session
        told = SessionOpened(
            message.session,
            message.family,
            message.client,
            message.workers,
            self.name,
            message.live,
            message.outputs,
            trace=message.trace,
            history=message.history,
        )
        self._endpoint.send(message.client, told)

    def _close(self, name: str) -> None:
        session = self._sessions.get(name)
        if session is None:
            return
        for request in list(session.requests.values()):
            self._drop(request)
        del self._sessions[name]

        def freed(_: object) -> None:
            self._memory.offer_again()
            self._endpoint.send(session.client, SessionClosed(name, self.name))

        self._on_engines(lambda engine: engine.end_session(name), freed)

    def _begin_request(self, message: BeginRequest) -> None:
        session = self._sessions.get(message.session)
        if session is None:
            self._late()
            return
        settings = {**session.settings, **message.settings}
        seed = settings.get("seed")
        partitions = frozenset(session.family.tasks[message.task].start)
        request = RequestState(
            message.request,
            message.epoch,
            session,
            settings,
            message.inputs,
            message.positions,
            seed if isinstance(seed, int) else zlib.crc32(message.request.encode()),
            partitions,
            session.seating.of(partitions),
            message.task in session.family.silent,
        )
        for name, emit in session.family.emits.items():
            if emit.window is not None:
                request.credit[name] = emit.window
        session.requests[message.request] = request
        request.order, self._begun = self._begun, self._begun + 1
        try:
            request.due = due_of(settings, self._clock.now()) if request.silent else math.inf
        except Rejected as wrong:
            self._reject(request, message.task, wrong)
            return
        self._intake.open_inlets(request)
        self._outlets.open(request)
        request.sources = sources_of(request)
        for held in session.release(message.request):
            self.handle(held)

    def _begin_walk(self, message: BeginWalk) -> None:
        request = self._find(message.request)
        if request is None:
            self._late()
            return
        partition = message.partition
        plan = request.session.family.walks[(partition, message.walk)]
        kept = request.kept.get(partition, {})
        try:
            limits = {name: limit for name, limit in request.settings.items() if isinstance(limit, int)}
            cursor = request.cursors[partition] = Cursor(plan, limits=limits)
            for name in plan.inputs:
                if name in kept:
                    cursor.put(name, kept.pop(name))
                else:
                    self._intake.give(request, partition, name, request.inputs[name])
        except Rejected as wrong:
            self._reject(request, message.walk, wrong)
            return
        self._ready.refresh(request, partition)

    def _credit(self, message: Credit) -> None:
        self._intake.credit(message)
        request = self._find(message.request)
        if request is not None:
            self._pacing.note(request)

    def _hear(self, message: Told) -> None:
        """What another worker of a request says."""
        request = self._find(message.request)
        if request is None:
            session = self._sessions.get(session_of(message.request))
            if session is None or not session.hold(message):
                self._transport.drop(cargo(message))
                self._late()
            return
        if not self._transport.here(cargo(message)):
            self._parked.append(message)
            return
        try:
            self._take_up(request, message)
        except Gone:
            self._late()
        except Rejected as wrong:
            self._reject(request, message.stream if isinstance(message, Items) else "", wrong)

    def _take_up(self, request: RequestState, message: Told) -> None:
        match message:
            case Items():
                self._inlets.arrive(request, message)
            case Room():
                if self._outlets.room(request, message):
                    self._steps.refresh(request)
            case Pace():
                self._pacing.take(request, message)
            case Fire():
                self._guests.arrive(request, message)
            case Fired(outputs=outputs, stop=stop):
                self._steps.back(request, message.number, self._transport.unpack(outputs), stop, message.left)
            case Give():
                self._images.give(request, message)
            case Image():
                self._images.arrive(request, message)

    def _unpark(self) -> None:
        """Take up messages whose arrays have come."""
        self._transport.here(None)
        parked, self._parked = self._parked, []
        for message in parked:
            self._hear(message)

    def _find(self, request: str) -> RequestState | None:
        session = self._sessions.get(session_of(request))
        return session.requests.get(request) if session is not None else None

    def _late(self) -> None:
        self._lates += 1

    # ------------------------------------------------------------------------------------------ steps

    @property
    def steps(self) -> int:
        """Steps executed so far."""
        return self._steps.done

    @property
    def busy(self) -> bool:
        return bool(self._steps.flight or self._ready)

    def next_wake(self) -> float | None:
        """Clock time (s) at which something is to be done though no message comes."""
        deadline = self._ready.next_wake()
        if not self._memory or self._steps.flight:  # nobody is refused before the step has ended
            return deadline
        patience = self._memory.next_wake()
        return min((at for at in (deadline, patience) if at is not None), default=None)

    def schedule(self) -> bool:
        """Hand the next batch to the executor, if it is free and something can run."""
        if self._transport.descriptor is not None:
            self._unpark()
        self._steps.send_away()
        scheduled = self._steps.next()
        self._inlets.tell()
        self._pacing.tell()
        return scheduled

    def collect(self) -> None:
        """Take up the outcomes of a finished step."""
        self._executor.collect()

    # ------------------------------------------------------------------------------------------ endings

    def _reject(self, request: RequestState, what: str, wrong: Rejected) -> None:
        self._fail(request, what, wrong.message, wrong.code, wrong.param or "")

    def _fail(self, request: RequestState, node: str, cause: str, code: str = "node_failed", param: str = "") -> None:
        self._endpoint.send(CONDUCTOR, StepFailed(request.name, node.rpartition("/")[2], cause, code, param))
        self._end_request(request.name)

    def _end_request(self, name: str) -> None:
        request = self._find(name)
        if request is not None:
            self._drop(request)
            self._on_engines(lambda engine: engine.end_request(name))
            self._executor.submit(lambda: None, lambda _: self._memory.offer_again())
        elif (session := self._sessions.get(session_of(name))) is not None:
            session.bury(name)

    def _drop(self, request: RequestState) -> None:
        session = request.session
        del session.requests[request.name]
        session.bury(request.name)
        self._steps.measures.ended(request)
        self._transport.free(request.name)
        for message in self._parked:
            if message.request == request.name:
                self._transport.drop(cargo(message))
        self._parked = [message for message in self._parked if message.request != request.name]
        self._pacing.forget(request)
        self._memory.served(request)
        for partition in request.cursors:
            self._ready.forget(request, partition)
        for guest in request.guests.values():
            self._ready.dismiss(request, guest)
        for live in session.live.values():
            live.listeners = [listener for listener in live.listeners if listener[0] != request.name]
            live.wants = [want for want in live.wants if want.request != request.name]

    def _on_engines(self, act: Callable[[Engine], Any], then: Callable[[list[Any]], None] | None = None) -> None:
        """Do something to every engine, behind the step in flight."""
        self._executor.submit(lambda: [act(engine) for engine in self._all_engines], then)

    # ------------------------------------------------------------------------------------------ seeing

    def progress(self, life: int = 1) -> None:
        """Tell the conductor how far this worker is; `life` counts the processes that have been it."""
        self._endpoint.send(CONDUCTOR, Progress(self.name, self.steps, self._executor.busy, life))

    def _answer(self, message: Ask) -> None:
        def tell(value: Any) -> None:
            self._endpoint.send(message.client, Answer(message.ask, self.name, value))

        match message.what:
            case "census":
                self._on_engines(
                    lambda engine: engine.census(),
                    lambda engines: tell(total(self._account.census(len(self._parked)), engines)),
                )
            case "counters":
                self._on_engines(
                    lambda engine: engine.counters(),
                    lambda engines: tell(total(self._account.told(self._lates), engines)),
                )
            case "measures":
                tell(self._steps.measures.told(self._account.requests()))
            case "trace":
                tell(self._steps.tracing.of(message.session))
            case _:
                tell(None)
