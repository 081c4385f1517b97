"""Conductor, workers and a client on a local bus, turned step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from mstar.bus.local import LocalBus
from mstar.client.client import CONDUCTOR, Client, Session
from mstar.clock import Clock, ManualClock
from mstar.conductor.conductor import Conductor
from mstar.graph.check import check
from mstar.graph.declare import Graph
from mstar.messages import WorkerReady
from mstar.placement import Placement, one_rank
from mstar.transport.inline import InlineTransport
from mstar.worker.build import build_worker
from mstar.worker.executor import InlineExecutor
from mstar.worker.worker import Worker


class LocalSystem:
    """`graphs` by family name, `settings` per family for the submodules' factories."""

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        placement: Placement | None = None,
        clock: Clock | None = None,
    ) -> None:
        for graph in graphs.values():
            check(graph)
        placement = placement or one_rank()
        self.clock = clock or ManualClock()
        self.bus = LocalBus()
        placed = {name: placement.place(name, graph) for name, graph in graphs.items()}
        self._conductor_end = self.bus.endpoint(CONDUCTOR)
        self.conductor = Conductor(graphs, placed)
        self.client = Client(self.bus.endpoint("server"), self.clock)
        self.workers: dict[str, Worker] = {}
        self._ends = {}
        settings = {name: (settings or {}).get(name, {}) for name in graphs}
        for rank in placement.ranks:
            families = [name for name in graphs if rank.worker in placed[name].workers]
            if not families:
                continue
            end = self._ends[rank.worker] = self.bus.endpoint(rank.worker)
            self.workers[rank.worker] = build_worker(
                rank.worker, rank, graphs, placed, settings, end, self.clock, InlineExecutor(), InlineTransport()
            )
            for family in families:
                end.send(CONDUCTOR, WorkerReady(rank.worker, family, 0))
        self.turn()

    def turn(self) -> bool:
        """Deliver what waits on the bus and run at most one step a worker; False = nothing was to be done."""
        moved = False
        for message in self._conductor_end.receive():
            moved = True
            for to, answer in self.conductor.handle(message, self.clock.now()):
                self._conductor_end.send(to, answer)
        for name, worker in self.workers.items():
            for message in self._ends[name].receive():
                moved = True
                worker.handle(message)
            worker.collect()
            moved = worker.schedule() or moved
            worker.collect()
        return moved or any(self.bus.waiting(name) for name in (CONDUCTOR, *self.workers))

    def run(self, until: Callable[[], bool] | None = None, *, turns: int = 100_000) -> int:
        """Turn until nothing moves, or `until()`; returns the number of turns. Raises RuntimeError beyond `turns`."""
        for count in range(turns):
            if until is not None and until():
                return count
            if not self.turn():
                return count
        raise RuntimeError(f"still moving after {turns} turns")

    def open(self, family: str, *, settings: Mapping[str, Any] | None = None, trace: bool = False) -> Session:
        session = self.client.open_soon(family, settings=settings, trace=trace)
        self.run()
        return session

    def close(self, session: Session) -> None:
        self.client.close_session(session)
        self.run()

    def census(self) -> dict[str, int]:
        """What all parties hold, by name, summed."""
        self.run()
        total: dict[str, int] = {}
        for name in (CONDUCTOR, *self.workers):
            for what, count in self.ask("census", of=name).items():
                total[what] = total.get(what, 0) + count
        total["client_sessions"] = len(self.client.sessions)
        total["client_requests"] = sum(len(session.requests) for session in self.client.sessions.values())
        return total

    def ask(self, what: str, *, of: str = CONDUCTOR, family: str = "", session: str = "") -> Any:
        """A question to one party, answered at once."""
        answers: list[Any] = []
        self.client.ask_then(what, answers.append, of=of, family=family, session=session)
        self.run()
        return answers[0]

    async def serve(self) -> None:
        """Turn whenever a message arrives, until cancelled: a server over a system in its own process."""
        arrived = asyncio.Event()
        for end in (self._conductor_end, *self._ends.values()):
            end.on_arrival(arrived.set)
        while True:
            self.run()
            await arrived.wait()
            arrived.clear()
