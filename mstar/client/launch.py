"""Starts a conductor and its workers as processes and gives a `Client` of them (torch-free)."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mstar.bus.zeromq import ZmqEndpoint
from mstar.client.client import CONDUCTOR, Client
from mstar.client.run import Run
from mstar.errors import WorkerLost
from mstar.placement import Placement

_STOP_SECONDS = 10.0


class Launched:
    """The processes of one server. Use `await ready()` before the first session and `await stop()` at the end."""

    def __init__(
        self, run: Run, client: Client, endpoint: ZmqEndpoint, processes: Mapping[str, subprocess.Popen[bytes]]
    ) -> None:
        self.client = client
        self.processes = processes
        self.directory = run.directory
        self._run = run
        self._endpoint = endpoint

    async def ready(self) -> None:
        """Wait until every worker has loaded. Raises WorkerLost when one of the processes ends instead."""
        while True:
            self.check()
            try:
                workers = await asyncio.wait_for(self.client.ask("workers"), 1.0)
            except TimeoutError:
                continue
            if isinstance(workers, list) and all(worker["ready"] for worker in workers):
                return
            await asyncio.sleep(0.05)

    def check(self) -> None:
        """Raises WorkerLost if a process has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                cause = self._run.cause(name)
                told = f": {cause.read_text()}" if cause.exists() else f" ended with status {process.returncode}"
                raise WorkerLost(name + told)

    async def stop(self) -> None:
        """End all processes: told first, killed after 10 s; removes the socket directory."""
        self.client.close()
        loop = asyncio.get_running_loop()
        for process in self.processes.values():
            if process.stdin is not None:
                process.stdin.close()
        for process in self.processes.values():
            try:
                await loop.run_in_executor(None, process.wait, _STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                await loop.run_in_executor(None, process.wait)
        shutil.rmtree(self.directory, ignore_errors=True)


def launch(
    families: Mapping[str, Mapping[str, Any]],
    placement: Placement,
    *,
    name: str = "server",
    directory: Path | None = None,
) -> Launched:
    """Start everything; to be called in a running asyncio loop.

    `families`: name → {"module": import path of the family's model.py, "settings": plain data}. Raises GraphError or
    Rejected before any process starts if a graph or the placement is wrong.
    """
    where = Path(tempfile.mkdtemp(prefix="mstar-")) if directory is None else directory
    run = Run(where, families, placement)
    try:
        placement.check_threads(len(os.sched_getaffinity(0)))
        graphs = run.graphs()
        placed = run.placed(graphs)
        path = run.write()
    except BaseException:
        shutil.rmtree(where, ignore_errors=True)
        raise
    endpoint = ZmqEndpoint(where, name)
    endpoint.attach()
    names = [CONDUCTOR, *sorted({worker for each in placed.values() for worker in each.workers})]
    processes: dict[str, subprocess.Popen[bytes]] = {}
    for process in names:
        role = [process] if process == CONDUCTOR else ["worker", process]
        processes[process] = subprocess.Popen(  # noqa: S603 - this Python, our own module
            [sys.executable, "-m", "mstar.node", str(path), *role],
            stdin=subprocess.PIPE,
            env=_environment(run, process),
        )
    return Launched(run, Client(endpoint), endpoint, processes)


def _environment(run: Run, process: str) -> dict[str, str]:
    """Thread counts must be set before numeric libraries load."""
    threads = next((rank.threads for rank in run.placement.ranks if rank.worker == process), 1)
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
