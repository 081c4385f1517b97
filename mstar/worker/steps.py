"""One step after another: what is chosen goes to the engines, what they give goes on its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mstar.bus import Endpoint
from mstar.clock import Clock
from mstar.engine.api import Completed, Deferred, Engine, Failed, Firing, Outcome, Partial
from mstar.errors import Rejected
from mstar.graph.cursor import Cursor, Taken
from mstar.messages import WalkDone
from mstar.tensors import Output
from mstar.worker.away import Away, Guests, Images
from mstar.worker.executor import Executor
from mstar.worker.links import Inlets
from mstar.worker.measures import Measures
from mstar.worker.memory import MemoryQueue
from mstar.worker.outflow import Outflow
from mstar.worker.ready import Choice, Ready
from mstar.worker.state import Elsewhere, Guest, RequestState
from mstar.worker.tracing import Tracing

CONDUCTOR = "conductor"
NODE_FAILED = "node_failed"


@dataclass(frozen=True, slots=True)
class Requests:
    """What steps ask of the worker that holds the requests."""

    find: Callable[[str], RequestState | None]
    knows: Callable[[str], bool]  # a session
    late: Callable[[], None]
    fail: Callable[[RequestState, str, str, str, str], None]  # node, cause, code, param
    reject: Callable[[RequestState, str, Rejected], None]


@dataclass(frozen=True, slots=True)
class Hands:
    """What a step's outcome passes through."""

    outflow: Outflow
    inlets: Inlets
    away: Away
    guests: Guests
    images: Images


class Steps:
    """`engines`: component → the engine that runs it. At most one step is in flight."""

    def __init__(
        self,
        name: str,
        engines: Mapping[str, Engine],
        endpoint: Endpoint,
        clock: Clock,
        executor: Executor,
        ready: Ready,
        memory: MemoryQueue,
        hands: Hands,
        requests: Requests,
    ) -> None:
        self.done = 0
        self.firings = 0
        self.stale = 0
        self.flight: list[Choice] = []
        self.tracing = Tracing(name, endpoint)
        self.measures = Measures()
        self._name = name
        self._engines = engines
        self._endpoint = endpoint
        self._clock = clock
        self._executor = executor
        self._ready = ready
        self._memory = memory
        self._outflow = hands.outflow
        self._inlets = hands.inlets
        self._away = hands.away
        self._guests = hands.guests
        self._images = hands.images
        self._requests = requests

    def next(self) -> bool:
        """Hand the next batch to the executor, if it is free and something can run."""
        if self.flight:
            return False
        if self._memory:
            for request, reason in self._memory.overdue(self._clock.now())[:1]:
                self._requests.fail(request, "memory", reason, "out_of_memory", "")
        firings = self._begin()
        if not firings:
            return False
        self.done += 1
        engine = self._engines[firings[0].component]
        started = self._clock.now()

        def step() -> tuple[list[Outcome], float]:
            return engine.step(firings), self._clock.now()

        self._executor.submit(step, lambda result: self._stepped(firings, result[0], started, result[1]))
        return True

    def _begin(self) -> list[Firing]:
        """The next firings; [] if nothing can run. What streams that end make able elsewhere is sent away."""
        firings: list[Firing] = []
        while not firings:
            batch = self._ready.choose()
            if not batch:
                break
            firings = self._take(batch)
            if len(firings) < len(batch):
                self.send_away()
        return firings

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
                self._images.claim(request, walk.plan.component(each.node), self._name)
            request.served = self.done + 1
            self.flight.append(choice)
            node = walk.plan.nodes[each.node]
            firings.append(
                Firing(
                    request.session.name,
                    request.name,
                    each.component,
                    each.walk,
                    taken.inputs,
                    taken.spans,
                    request.settings,
                    taken.iteration,
                    node.prompt,
                    request.seed,
                    node.name,
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

    def send_away(self) -> None:
        """Send firings of nodes that run elsewhere, or whose state is elsewhere, on their way."""
        self._images.retry()
        for partition, node, request, cursor in self._ready.leaving():
            component = cursor.plan.component(node)
            worker = request.runs_on(partition, cursor.plan, node) or self._name
            if not self._away.may_go(request, component, worker):
                continue
            taken = self._draw(request, partition, cursor, node)
            if taken is None:
                continue
            try:
                self._away.send(request, partition, cursor, node, taken, worker)
            except TypeError as wrong:
                self._requests.fail(request, component, f"TypeError: {wrong}", NODE_FAILED, "")
                continue
            self._ready.refresh(request, partition)

    def back(self, request: RequestState, number: int, outputs: Any, stop: bool, left: tuple[str, ...] = ()) -> None:
        """A firing that was sent elsewhere has come back, but for the outputs that are `left` there."""
        errand = request.errands.pop(number, None)
        if errand is None:
            self._requests.late()
            return
        if left:
            outputs = {**outputs, **{name: Elsewhere(errand.node, name) for name in left}}
        self._complete(request, errand.partition, errand.cursor, errand.node, outputs, stop)

    def _stepped(self, firings: Sequence[Firing], outcomes: Sequence[Outcome], started: float, ended: float) -> None:
        flight, self.flight = self.flight, []
        ran = [_ran(outcome) for outcome in outcomes]
        batch = sum(ran)
        self.firings += batch
        if batch:
            self.measures.step(firings[0], batch, ended - started)
            self._ready.costs.observe(firings[0].component, firings[0].walk, batch, ended - started)
        for choice, firing, outcome, worked in zip(flight, firings, outcomes, ran, strict=True):
            if worked and self._requests.knows(firing.session):
                self.tracing.add(firing, choice[1].session, batch, started, (ended - started) * 1000)
            if choice[1].alive:
                self._settle(choice, outcome)
            else:
                self.stale += 1
        if self._memory:
            self._relieve()
            if any(worked and not isinstance(outcome, Failed) for worked, outcome in zip(ran, outcomes, strict=True)):
                self._memory.offer_again()
        self.tracing.send()

    def _relieve(self) -> None:
        """Make a request give way to a more urgent one that waits for memory."""
        relief = self._memory.relief(self._requests.find, lambda request: self._ready.pressing(request).kind == 0)
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
                self._requests.fail(request, each.component, cause, code, param)
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
        elif walk.home == self._name:
            self.back(request, walk.number, outputs, stop)
        else:
            try:
                self._guests.leave(request, walk, outputs, stop)
            except TypeError as wrong:
                self._requests.fail(request, each.component, f"TypeError: {wrong}", NODE_FAILED, "")

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
            self._requests.reject(request, component, wrong)
            return
        except (ValueError, TypeError) as wrong:  # not declared, or of a type that can not travel
            self._requests.fail(request, component, f"{type(wrong).__name__}: {wrong}", NODE_FAILED, "")
            return
        self._moved(request, partition, cursor)

    def _moved(self, request: RequestState, partition: str, cursor: Cursor) -> None:
        """A cursor has moved: see what can run now, and whether its walk is done."""
        if cursor.done:
            walk = cursor.plan.name
            del request.cursors[partition]
            self._ready.forget(request, partition)
            if cursor.stopped or (partition, walk) in request.session.family.last:
                self._outflow.end_streams(request, partition)
            done = WalkDone(request.name, partition, walk, cursor.stopped, dict(request.emitted))
            self._endpoint.send(CONDUCTOR, done)
        if request.session.seating.moving:  # where a node can run depends on where others did
            self.refresh(request)
            return
        for other in request.session.family.touched[partition]:
            if other in request.cursors:
                self._ready.refresh(request, other)

    def refresh(self, request: RequestState) -> None:
        """Something changed that any of its walks may have waited for."""
        for partition in list(request.cursors):
            self._ready.refresh(request, partition)


def _ran(outcome: Outcome) -> bool:
    """Whether the firing took part: what waits for memory, or got nothing of the step, did not."""
    return not isinstance(outcome, Deferred) and not (isinstance(outcome, Partial) and not outcome.computed)
