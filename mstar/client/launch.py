"""Starts a conductor and its workers as processes and gives a `Client` of them (torch-free)."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mstar.bus.patience import Patience
from mstar.bus.zeromq import ZmqEndpoint
from mstar.client.client import CONDUCTOR, Client
from mstar.client.folder import lock, made
from mstar.client.processes import STOP_SECONDS, News, Processes
from mstar.client.run import Run
from mstar.errors import ConductorLost, WorkerLost
from mstar.messages import LAUNCHER
from mstar.placement import Placement

ASK_SECONDS = 1.0
"""How often the conductor is asked whether it is there."""


class Launched:
    """The processes of one server. Use `await ready()` before the first session and `await stop()` at the end.

    Once it is ready, a worker that ends or stands still is replaced. What can not be replaced ends `watch()`.
    """

    def __init__(self, run: Run, path: Path, endpoint: ZmqEndpoint, launcher: ZmqEndpoint, *, spare: bool) -> None:
        self.client = Client(endpoint)
        self._lock = lock(run.directory)
        self.directory = run.directory
        self._run = run
        self._lost: asyncio.Future[WorkerLost] = asyncio.get_running_loop().create_future()
        self._processes = Processes(run, path, launcher, self._lose, spare=spare)

    @property
    def processes(self) -> Mapping[str, subprocess.Popen[bytes]]:
        """The newest process of each name."""
        return self._processes.running

    @property
    def spare(self) -> subprocess.Popen[bytes] | None:
        """A process that is no worker yet."""
        return self._processes.spare

    def start(self, names: list[str]) -> None:
        for name in names:
            self._processes.start(name)

    def on_news(self, told: Callable[[News], None]) -> None:
        """`told` is called when a worker is lost, and when it is there again."""
        self._processes.on_news = told

    async def ready(self) -> None:
        """Wait until every worker has loaded. Raises WorkerLost when one of the processes ends instead."""
        while True:
            self.check()
            workers = await self._ask()
            if isinstance(workers, list) and all(worker["ready"] for worker in workers):
                self._processes.supervised = True
                self._processes.keep_spare()
                return
            await asyncio.sleep(0.05)

    def check(self) -> None:
        """Raises WorkerLost if a process that is not replaced has ended."""
        if self._lost.done():
            raise self._lost.result()

    async def watch(self) -> None:
        """Look after the conductor. Raises ConductorLost when it is gone, WorkerLost when a worker is for good."""
        silent = 0.0
        while True:
            silent = 0.0 if await self._ask() is not None else silent + 2 * ASK_SECONDS
            if silent >= self._run.patience.silent:
                self._lose(ConductorLost(f"{CONDUCTOR} has said nothing for {silent:.0f} s"))
            await asyncio.wait({self._lost}, timeout=ASK_SECONDS)
            self.check()

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End all processes: told first, killed after `seconds`; removes the socket directory."""
        self.client.close()
        await self._processes.stop(seconds)
        shutil.rmtree(self.directory, ignore_errors=True)
        os.close(self._lock)

    def _lose(self, why: WorkerLost) -> None:
        if not self._lost.done():
            self._lost.set_result(why)
            self.client.lose(str(why))

    async def _ask(self) -> object:
        """What the conductor says of its workers; None if it says nothing."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self.client.ask("workers")
        except TimeoutError:
            return None


def launch(
    families: Mapping[str, Mapping[str, Any]],
    placement: Placement,
    *,
    name: str = "server",
    directory: Path | None = None,
    patience: Patience | None = None,
    spare: bool = False,
) -> Launched:
    """Start everything; to be called in a running asyncio loop.

    `families`: name → {"module": import path of the family's model.py, "settings": plain data}. Raises GraphError or
    Rejected before any process starts if a graph or the placement is wrong. `spare`: once all is ready, keep a process
    that has the code of every worker loaded and no weights, to take the place of a lost one sooner.
    """
    where = made() if directory is None else directory
    run = Run(where, families, placement, patience or Patience())
    try:
        placement.check_threads(len(os.sched_getaffinity(0)))
        graphs = run.graphs()
        placed = run.placed(graphs)
        path = run.write()
    except BaseException:
        shutil.rmtree(where, ignore_errors=True)
        raise
    ends = [ZmqEndpoint(where, each) for each in (name, LAUNCHER)]
    for end in ends:
        end.attach()
    launched = Launched(run, path, *ends, spare=spare)
    launched.start([CONDUCTOR, *sorted({worker for each in placed.values() for worker in each.workers})])
    return launched
