"""Conductor, workers and a client on a local bus, turned step by step. Workers can be lost, as processes can."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from mstar.bus.local import LocalBus, LocalEndpoint
from mstar.bus.patience import ENDLESS, Patience
from mstar.client.client import CONDUCTOR, Client, Session
from mstar.clock import Clock, ManualClock
from mstar.conductor.conductor import Conductor, Out
from mstar.conductor.workers import TICK_SECONDS
from mstar.graph.check import check
from mstar.graph.declare import Graph
from mstar.messages import LAUNCHER, GiveUp, ReplaceWorker, WorkerExited, WorkerReady
from mstar.placement import Placement, one_rank
from mstar.transport.api import Transport
from mstar.transport.local import LocalTransport, Shelf
from mstar.worker.build import build_worker
from mstar.worker.executor import InlineExecutor
from mstar.worker.worker import Worker


class LocalSystem:
    """`graphs` by family name, `settings` per family for the submodules' factories.

    `transport` by worker: by default values go by reference.

    `replacing`: a lost worker is built again at the next turn; else when `replace` is called.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        placement: Placement | None = None,
        clock: Clock | None = None,
        patience: Patience = ENDLESS,
        transport: Callable[[str], Transport] | None = None,
    ) -> None:
        for graph in graphs.values():
            check(graph)
        placement = placement or one_rank()
        shelf = Shelf()
        self._transport = transport or (lambda _: LocalTransport(shelf))
        self._transports: dict[str, Transport] = {}
        self.clock = clock or ManualClock()
        self.bus = LocalBus()
        self._graphs = graphs
        self._placed = {name: placement.place(name, graph) for name, graph in graphs.items()}
        self._settings = {name: (settings or {}).get(name, {}) for name in graphs}
        self._ranks = {rank.worker: rank for rank in placement.ranks}
        self._launcher = self.bus.endpoint(LAUNCHER)
        self._conductor_end = self.bus.endpoint(CONDUCTOR)
        self.conductor = Conductor(graphs, self._placed, patience)
        self.client = Client(self.bus.endpoint("server"), self.clock)
        self.workers: dict[str, Worker] = {}
        self.replacing = True
        self.given_up = ""
        """Why no more workers are started."""
        self._ends: dict[str, LocalEndpoint] = {}
        self._lives: dict[str, int] = {}
        self._wanted: dict[str, int] = {}  # worker → life that is to be started
        self._frozen: set[str] = set()
        self._wedged: set[str] = set()
        self._ticked = self.clock.now()
        self._watched = patience.silent < inf
        for rank in placement.ranks:
            if any(rank.worker in placed.workers for placed in self._placed.values()):
                self._start(rank.worker, 1)
        self.turn()

    def _start(self, name: str, life: int) -> None:
        end = self._ends[name] = self.bus.endpoint(name)
        self._lives[name] = life
        before = self._transports.pop(name, None)
        if before is not None:
            before.close()
        transport = self._transports[name] = self._transport(name)
        self.workers[name] = build_worker(
            name,
            self._ranks[name],
            self._graphs,
            self._placed,
            self._settings,
            end,
            self.clock,
            InlineExecutor(),
            transport,
        )
        for family, placed in self._placed.items():
            if name in placed.workers:
                end.send(CONDUCTOR, WorkerReady(name, family, 0, life))

    # ------------------------------------------------------------------------------------------ going on

    def turn(self) -> bool:
        """Deliver what waits on the bus and run at most one step a worker; False = nothing was to be done."""
        moved = self._launch()
        for message in self._conductor_end.receive():
            moved = True
            self._post(self.conductor.handle(message, self.clock.now()))
        for name, worker in list(self.workers.items()):
            if name in self._frozen:
                continue
            for message in self._ends[name].receive():
                moved = True
                worker.handle(message)
            if name not in self._wedged:
                worker.collect()
                moved = worker.schedule() or moved
                worker.collect()
            else:
                worker.schedule()
        self._tick()
        return moved or any(self.bus.waiting(name) for name in (CONDUCTOR, *self.workers.keys() - self._frozen))

    def _tick(self) -> None:
        """What the processes do about once a second."""
        now = self.clock.now()
        if now - self._ticked < TICK_SECONDS:
            return
        self._ticked = now
        for name, worker in self.workers.items():
            if self._watched and name not in self._frozen:
                worker.progress(self._lives[name])
        for message in self._conductor_end.receive():
            self._post(self.conductor.handle(message, now))
        self._post(self.conductor.tick(now))

    def _post(self, out: Out) -> None:
        for to, message in out:
            self._conductor_end.send(to, message)

    def _launch(self) -> bool:
        """What the launcher does."""
        moved = False
        for message in self._launcher.receive():
            moved = True
            match message:
                case ReplaceWorker(worker=name, life=life):
                    self._remove(name)
                    self._wanted[name] = life
                case GiveUp(cause=cause):
                    self.given_up = cause
                case _:
                    pass
        if self.replacing and self._wanted:
            self.replace()
            return True
        return moved

    # ------------------------------------------------------------------------------------------ failure

    def kill(self, name: str) -> None:
        """The worker's process ends in the middle of what it did."""
        self._remove(name)
        self._launcher.send(CONDUCTOR, WorkerExited(name, self._lives[name], "ended with status -9 (SIGKILL)"))

    def freeze(self, name: str) -> None:
        """The worker is stopped: it does and says nothing."""
        self._frozen.add(name)

    def wedge(self, name: str) -> None:
        """No step of the worker ends any more; it still hears and tells."""
        self._wedged.add(name)

    def replace(self) -> None:
        """Start the workers that the conductor wants to be started."""
        wanted, self._wanted = self._wanted, {}
        for name, life in wanted.items():
            self._start(name, life)

    def _remove(self, name: str) -> None:
        if self.workers.pop(name, None) is not None:
            self._ends.pop(name).close()
        self._frozen.discard(name)
        self._wedged.discard(name)

    # ------------------------------------------------------------------------------------------ for callers

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
