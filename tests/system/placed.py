"""What every family must do under every placement: the same, and leave nothing, whatever happens to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mstar.client import Emission, Request, RequestEnded, Session
from mstar.graph.declare import Graph
from mstar.local import LocalSystem
from mstar.placement import Placement
from mstar.transport.inline import InlineTransport
from tests.system.answers import Answer, answer_of, begins, told
from tests.system.toy import end_of

Asking = Callable[[Session], Request]
Events = list[Emission | RequestEnded]

CLOCKED = ("elapsed_ms",)
"""Fields that tell how long something took."""


@dataclass
class Placed:
    """A family, what it is asked, and what it answers on one rank."""

    graph: Graph
    settings: Mapping[str, Any]
    asks: Mapping[str, Asking]
    expected: dict[str, Answer] = field(default_factory=dict)

    def system(self, placement: Placement | None = None, *, wire: bool = False) -> LocalSystem:
        """`wire`: arrays go inside messages, as copies, as they do between hosts."""
        name, transport = self.graph.name, (lambda _: InlineTransport()) if wire else None
        return LocalSystem({name: self.graph}, settings={name: self.settings}, placement=placement, transport=transport)

    def wanted(self, ask: str) -> Answer:
        """The answer of a system on one rank that was never asked anything else."""
        if ask not in self.expected:
            system = self.system()
            self.expected[ask] = self.answer(system, system.open(self.graph.name), ask)
        return self.expected[ask]

    def answer(self, system: LocalSystem, session: Session, ask: str) -> Answer:
        request = self.asks[ask](session)
        system.run()
        return answer_of(request.drain(), CLOCKED)

    # ------------------------------------------------------------------------------------------------------- checks

    def is_the_same(self, placement: Placement, *, wire: bool = False) -> LocalSystem:
        """Every session gets what one rank gives, bit for bit; nothing is left of them."""
        system = self.system(placement, wire=wire)
        baseline = system.census()
        sessions = [system.open(self.graph.name) for _ in range(2)]
        for session in sessions:
            for ask in self.asks:
                assert self.answer(system, session, ask) == self.wanted(ask), ask
        for session in sessions:
            system.close(session)
        assert system.census() == baseline
        return system

    def crossings(self, placement: Placement, ask: str) -> Mapping[str, int]:
        """Messages of one answer: those from worker to worker by kind, and to the `conductor`.

        Each between workers is accounted for: a firing goes and comes back, an image is asked for and given.
        """
        system = self.system(placement)
        session = system.open(self.graph.name)
        kinds: Counter[str] = Counter()
        post: Callable[..., None] = system.bus.post

        def note(sender: str, to: str, message: object) -> None:
            if sender != to and sender in system.workers and to in system.workers:
                kinds[type(message).__name__] += 1
            post(sender, to, message)

        system.bus.post = note  # type: ignore[method-assign]
        before = system.conductor.counters["messages"]
        self.answer(system, session, ask)
        assert kinds["Fire"] == kinds["Fired"]
        assert kinds["Give"] <= kinds["Image"]  # home asks itself without a message
        assert kinds["Pace"] < len(system.workers)
        assert set(kinds) <= {"Fire", "Fired", "Give", "Image", "Pace"}
        for name in system.workers:
            counted = system.ask("counters", of=name)
            assert (counted["inline_bytes"], counted["shared_bytes"]) == (0, 0)  # by reference
        return {**kinds, "conductor": system.conductor.counters["messages"] - before}

    def is_interrupted(self, placement: Placement, ask: str) -> None:
        """Every worker stops at once, the session goes on, and nothing is left."""
        system = self.system(placement)
        baseline = system.census()
        session = system.open(self.graph.name)
        for turns in self.moments(placement, ask):
            request = self.begun(system, session, ask, turns)
            seen: Events = request.drain()
            request.interrupt()
            steps = sum(worker.steps for worker in system.workers.values())
            system.run()
            assert sum(worker.steps for worker in system.workers.values()) - steps <= 2 * len(system.workers)
            seen += request.drain()
            assert end_of(seen).status == "cancelled"
            assert begins(told(seen, CLOCKED), self.wanted(ask))
            assert self.answer(system, session, ask) == self.wanted(ask)
        system.close(session)
        assert system.census() == baseline

    def is_superseded(self, placement: Placement, old: str, new: str) -> None:
        """A newer ask takes the place of one that is being answered."""
        system = self.system(placement)
        session = system.open(self.graph.name)
        for turns in self.moments(placement, old):
            first = self.begun(system, session, old, turns)
            first.interrupt()
            second = self.asks[new](session)
            system.run()
            assert end_of(first.drain()).status == "cancelled"
            assert answer_of(second.drain(), CLOCKED) == self.wanted(new)

    def is_left(self, placement: Placement, ask: str) -> None:
        """The client is gone in the middle of an answer; another one is not disturbed."""
        system = self.system(placement)
        baseline = system.census()
        for turns in self.moments(placement, ask):
            session, other = system.open(self.graph.name), system.open(self.graph.name)
            self.begun(system, session, ask, turns)
            system.client.close_session(session)
            assert self.answer(system, other, ask) == self.wanted(ask)
            system.close(other)
            assert system.census() == baseline

    def loses_workers(self, placement: Placement, ask: str) -> None:
        """Any worker ends in the middle of an answer: what came is right, the end has its code, the session lives."""
        system = self.system(placement)
        baseline = system.census()
        session = system.open(self.graph.name)
        seating = placement.place(self.graph.name, self.graph).seat()
        moments = self.moments(placement, ask)
        for number, worker in enumerate(session.workers):
            request = self.begun(system, session, ask, moments[number % len(moments)])
            [task] = [task for task in self.graph.tasks if task.name == request.task]
            system.kill(worker)
            system.run()
            events = request.drain()
            end = end_of(events)
            if worker in seating.of(task.start):
                assert (end.status, end.code) == ("failed", "worker_lost")
                assert end.cause.startswith(f"{worker} ended with status -9")
                assert begins(told(events, CLOCKED), self.wanted(ask))
            else:  # it has no part in the answer
                assert answer_of(events, CLOCKED) == self.wanted(ask)
            assert self.answer(system, session, ask) == self.wanted(ask)
        system.close(session)
        assert system.census() == baseline

    # ------------------------------------------------------------------------------------------------------- inside

    def begun(self, system: LocalSystem, session: Session, ask: str, turns: int) -> Request:
        """A request in the middle of its answer, after so many turns."""
        request = self.asks[ask](session)
        for _ in range(turns):
            system.turn()
        assert not any(isinstance(event, RequestEnded) for event in request._events)
        return request

    def moments(self, placement: Placement, ask: str) -> Sequence[int]:
        """Turns after which a quarter, half and three quarters of an answer are done."""
        system = self.system(placement)
        session = system.open(self.graph.name)
        self.asks[ask](session)
        turns = system.run()
        return [turns * quarter // 4 for quarter in (1, 2, 3)]
