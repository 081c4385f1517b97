"""A worker as a state machine: messages in, steps out to the executor, outcomes in, messages out.

It holds no socket, thread or clock of its own: `handle` takes a message, `schedule` hands the next batch to the
executor, `collect` takes finished ones. Late messages for what has ended are dropped; those for what is about to begin
wait, bounded.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mstar.bus import Endpoint
from mstar.clock import Clock
from mstar.engine.api import Completed, Deferred, Engine, Failed, Firing, Outcome, Partial
from mstar.errors import Rejected
from mstar.graph.cursor import Cursor, Taken
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
    WalkDone,
    WorkerDown,
    session_of,
)
from mstar.streaming.history import History
from mstar.tensors import Output
from mstar.transport.api import Gone, Transport
from mstar.worker.away import Away, Guests, Images, cargo
from mstar.worker.executor import Executor
from mstar.worker.hosted import Hosted
from mstar.worker.intake import Intake
from mstar.worker.links import Inlets, Outlets, sources_of
from mstar.worker.measures import Measures
from mstar.worker.memory import MemoryQueue
from mstar.worker.outflow import Outflow
from mstar.worker.pacing import Pacing
from mstar.worker.ready import Choice, Ready, due_of
from mstar.worker.state import Guest, LiveStream, RequestState, SessionState, Told
from mstar.worker.tracing import Tracing

CONDUCTOR = "conductor"


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
        self.steps = 0
        self._begun = 0
        self._counters: dict[str, int] = {"firings": 0, "late_messages": 0, "stale_outcomes": 0}
        self._families = families
        self._engines = engines
        self._all_engines = list({id(engine): engine for engine in engines.values()}.values())
        self._endpoint = endpoint
        self._clock = clock
        self._executor = executor
        self._sessions: dict[str, SessionState] = {}
        self._flight: list[Choice] = []
        self._tracing = Tracing(name, endpoint)
        self._measures = Measures()
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
        self._away = Away(endpoint, transport, self._guests, self._images)
        self._outflow = Outflow(endpoint, self._ready, self._outlets, self._pacing)

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
                    self._refresh(request)
            case Pace():
                self._pacing.take(request, message)
            case Fire():
                self._guests.arrive(request, message)
            case Fired(outputs=outputs, stop=stop):
                self._back(request, message.number, self._transport.unpack(outputs), stop)
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

    def _refresh(self, request: RequestState) -> None:
        for partition in list(request.cursors):
            self._ready.refresh(request, partition)

    def _find(self, request: str) -> RequestState | None:
        session = self._sessions.get(session_of(request))
        return session.requests.get(request) if session is not None else None

    def _late(self) -> None:
        self._counters["late_messages"] += 1

    # ------------------------------------------------------------------------------------------ steps

    @property
    def busy(self) -> bool:
        return bool(self._flight or self._ready)

    def next_wake(self) -> float | None:
        """Clock time (s) at which something is to be done though no message comes."""
        times = (self._ready.next_wake(), self._memory.next_wake())
        return min((at for at in times if at is not None), default=None)

    def schedule(self) -> bool:
        """Hand the next batch to the executor, if it is free and something can run."""
        if self._transport.descriptor is not None:
            self._unpark()
        self._send_away()
        scheduled = not self._flight and self._schedule()
        self._inlets.tell()
        self._pacing.tell()
        return scheduled

    def _schedule(self) -> bool:
        for request, reason in self._memory.overdue(self._clock.now())[:1]:
            self._fail(request, "memory", reason, "out_of_memory")
        firings: list[Firing] = []
        while not firings:
            batch = self._ready.choose()
            if not batch:
                return False
            firings = self._take(batch)
        self.steps += 1
        engine = self._engines[firings[0].component]
        started = self._clock.now()

        def step() -> tuple[list[Outcome], float]:
            return engine.step(firings), self._clock.now()

        self._executor.submit(step, lambda result: self._stepped(firings, result[0], started, result[1]))
        return True

    def collect(self) -> None:
        """Take up the outcomes of a finished step."""
        self._executor.collect()

    def _take(self, batch: Sequence[Choice]) -> list[Firing]:
        """The chosen firings with their inputs. A stream that ends without a firing moves its walk on here."""
        firings = []
        for choice in batch:
            each, request, walk = choice
            if isinstance(walk, Guest):
                taken = walk.taken
                del request.guests[(each.partition, each.node)]
            else:
                drawn = self._draw(request, each.partition, walk, each.node)
                if drawn is None:
                    continue
                taken = drawn
                self._images.claim(request, walk.plan.component(each.node), self.name)
            request.served = self.steps + 1
            self._flight.append(choice)
            firings.append(
                Firing(
                    session=request.session.name,
                    request=request.name,
                    component=each.component,
                    walk=each.walk,
                    inputs=taken.inputs,
                    spans=taken.spans,
                    settings=request.settings,
                    iteration=taken.iteration,
                    prompt=walk.plan.prompt(each.node),
                    seed=request.seed,
                    node=walk.plan.nodes[each.node].name,
                )
            )
            self._ready.refresh(request, each.partition)
        return firings

    def _draw(self, request: RequestState, partition: str, cursor: Cursor, node: int) -> Taken | None:
        """Take a firing from its walk; None if its stream ended without one."""
        for port in cursor.missing_streams(node):
            cursor.chunk(node, port, request.buffer(partition, port).take(self._ready.now))
            self._inlets.note(request, (request.session.family.ports[(partition, port)], partition))
        if cursor.can_take(node):
            return cursor.take(node)
        self._outflow.deliver(request, partition, cursor.flush())
        self._moved(request, partition, cursor)
        return None

    def _send_away(self) -> None:
        """Send firings of nodes that run elsewhere, or whose state is elsewhere, on their way."""
        self._images.retry()
        for partition, node, request, cursor in self._ready.leaving():
            component = cursor.plan.component(node)
            worker = request.runs_on(partition, cursor.plan, node) or self.name
            if not self._away.may_go(request, component, worker):
                continue
            taken = self._draw(request, partition, cursor, node)
            if taken is None:
                continue
            try:
                self._away.send(request, partition, cursor, node, taken, worker)
            except TypeError as wrong:
                self._fail(request, component, f"TypeError: {wrong}")
                continue
            self._ready.refresh(request, partition)

    def _back(self, request: RequestState, number: int, outputs: Any, stop: bool) -> None:
        """A firing that was sent elsewhere has come back."""
        errand = request.errands.pop(number, None)
        if errand is None:
            self._late()
            return
        self._complete(request, errand.partition, errand.cursor, errand.node, outputs, stop)

    def _stepped(self, firings: Sequence[Firing], outcomes: Sequence[Outcome], started: float, ended: float) -> None:
        flight, self._flight = self._flight, []
        self._counters["firings"] += len(firings)
        ran = [not isinstance(outcome, Deferred) and outcome != Partial(0) for outcome in outcomes]
        batch = sum(ran)
        if batch:
            self._measures.step(firings[0], batch, ended - started)
            self._ready.costs.observe(firings[0].component, firings[0].walk, batch, ended - started)
        for choice, firing, outcome, worked in zip(flight, firings, outcomes, ran, strict=True):
            if worked and firing.session in self._sessions:
                self._tracing.add(firing, choice[1].session, batch, started, (ended - started) * 1000)
            if self._find(firing.request) is choice[1]:
                self._settle(choice, outcome)
            else:
                self._counters["stale_outcomes"] += 1
        self._relieve()
        if any(isinstance(outcome, Completed | Partial) and outcome != Partial(0) for outcome in outcomes):
            self._memory.offer_again()
        self._tracing.send()

    def _relieve(self) -> None:
        """Make a request give way to a more urgent one that waits for memory."""
        relief = self._memory.relief(self._find, lambda request: self._ready.pressing(request).kind == 0)
        if relief is not None:
            giving, component = relief
            giving.preempted += 1
            engine = self._engines[component]
            self._executor.submit(lambda: engine.preempt(giving.name, component))
            self._memory.offer_again()

    def _settle(self, choice: Choice, outcome: Outcome) -> None:
        each, request, _ = choice
        match outcome:
            case Completed(outputs=outputs, stop=stop):
                self._memory.served(request)
                self._hand_on(choice, outputs, stop)
            case Failed(cause=cause, code=code, param=param):
                self._fail(request, each.component, cause, code, param)
            case Partial(computed=0):
                self._put_back(choice)
                self._ready.restore(choice)
            case Partial():
                self._memory.served(request)
                self._put_back(choice)
            case Deferred():
                self._memory.wait(request, each.component, outcome, self._clock.now())
                self._put_back(choice)

    def _hand_on(self, choice: Choice, outputs: Mapping[str, Output], stop: bool) -> None:
        """What a firing gave goes to its walk, here or at its home."""
        each, request, walk = choice
        if not isinstance(walk, Guest):
            self._complete(request, each.partition, walk, each.node, outputs, stop)
        elif walk.home == self.name:
            self._back(request, walk.number, outputs, stop)
        else:
            try:
                self._guests.leave(request, walk, outputs, stop)
            except TypeError as wrong:
                self._fail(request, each.component, f"TypeError: {wrong}")

    def _put_back(self, choice: Choice) -> None:
        """The firing is to be offered again."""
        each, request, walk = choice
        if isinstance(walk, Guest):
            self._guests.receive(request, walk)
        else:
            walk.untake(each.node)
            self._ready.refresh(request, each.partition)

    def _complete(
        self,
        request: RequestState,
        partition: str,
        cursor: Cursor,
        node: int,
        outputs: Mapping[str, Output],
        stop: bool,
    ) -> None:
        """A firing has run: deliver what it gave."""
        component = cursor.plan.component(node)
        try:
            self._outflow.deliver(request, partition, cursor.complete(node, outputs, stop))
        except Rejected as wrong:  # a stream does not take it
            self._reject(request, component, wrong)
            return
        except (ValueError, TypeError) as wrong:  # not declared, or of a type that can not travel
            self._fail(request, component, f"{type(wrong).__name__}: {wrong}")
            return
        self._moved(request, partition, cursor)

    def _moved(self, request: RequestState, partition: str, cursor: Cursor) -> None:
        """A cursor has moved: see what can run now, and whether its walk is done."""
        if cursor.done:
            walk = cursor.plan.name
            del request.cursors[partition]
            self._ready.forget(request, partition, cursor)
            if cursor.stopped or (partition, walk) in request.session.family.last:
                self._outflow.end_streams(request, partition)
            done = WalkDone(request.name, partition, walk, cursor.stopped, dict(request.emitted))
            self._endpoint.send(CONDUCTOR, done)
        self._refresh(request)

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
        self._measures.ended(request)
        self._transport.free(request.name)
        for message in self._parked:
            if message.request == request.name:
                self._transport.drop(cargo(message))
        self._parked = [message for message in self._parked if message.request != request.name]
        self._pacing.forget(request)
        self._memory.served(request)
        for partition, cursor in request.cursors.items():
            self._ready.forget(request, partition, cursor)
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
        def answer(own: Mapping[str, int], engines: Sequence[Mapping[str, int]]) -> None:
            total = dict(own)
            for each in engines:
                for name, count in each.items():
                    total[f"engine_{name}"] = total.get(f"engine_{name}", 0) + count
            self._endpoint.send(message.client, Answer(message.ask, self.name, total))

        match message.what:
            case "census":
                self._on_engines(lambda engine: engine.census(), lambda engines: answer(self._census(), engines))
            case "counters":
                self._on_engines(lambda engine: engine.counters(), lambda engines: answer(self._told(), engines))
            case "measures":
                requests = [request for session in self._sessions.values() for request in session.requests.values()]
                self._endpoint.send(message.client, Answer(message.ask, self.name, self._measures.told(requests)))
            case "trace":
                self._endpoint.send(message.client, Answer(message.ask, self.name, self._tracing.of(message.session)))
            case _:
                self._endpoint.send(message.client, Answer(message.ask, self.name, None))

    def _census(self) -> dict[str, int]:
        """What is held now, besides the engines'."""
        sessions = self._sessions.values()
        requests = [request for session in sessions for request in session.requests.values()]
        live = [live for session in sessions for live in session.live.values()]
        return {
            "sessions": len(self._sessions),
            "requests": len(requests),
            "cursors": sum(len(request.cursors) for request in requests),
            "buffers": sum(len(request.buffers) for request in requests),
            "runnable": len(self._ready),
            "in_flight": len(self._flight),
            "waiting_for_memory": len(self._memory),
            "errands": sum(len(request.errands) for request in requests),
            "guests": sum(len(request.guests) for request in requests),
            "images": len(self._images),
            "parked": len(self._parked),
            "outlets": sum(len(request.outlets) for request in requests),
            **self._transport.census(),
            "early_messages": sum(len(session.early) for session in sessions),
            "listeners": sum(len(each.listeners) for each in live),
            "wanted_slices": sum(len(each.wants) for each in live),
        }

    def _told(self) -> dict[str, int]:
        """Totals since the start, besides the engines'; streams as they are now."""
        requests = [request for session in self._sessions.values() for request in session.requests.values()]
        buffers = [buffer for request in requests for buffer in request.buffers.values()]
        return {
            **self._counters,
            "emissions": self._outflow.emissions,
            "firings_sent": self._away.firings,
            "images_given": self._images.moves,
            **self._transport.counters(),
            "steps": self.steps,
            "stream_depth": sum(buffer.depth for buffer in buffers),
            "stream_dropped": sum(buffer.dropped for buffer in buffers),
        }
