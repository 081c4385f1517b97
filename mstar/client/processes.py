"""The processes of one run: started, watched, replaced when the conductor says so, ended (torch-free)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from mstar.bus import Endpoint
from mstar.client.run import Run
from mstar.client.session import CONDUCTOR
from mstar.errors import ConductorLost, WorkerLost
from mstar.messages import GiveUp, ReplaceWorker, WorkerExited, WorkerUp

STOP_SECONDS = 10.0
"""A process that was told to end is killed after this."""

News = ReplaceWorker | WorkerUp


class Processes:
    """To be used in one asyncio loop. `lost` is called, with the cause, when nothing can be saved."""

    def __init__(
        self, run: Run, path: Path, endpoint: Endpoint, lost: Callable[[WorkerLost], None], *, spare: bool = False
    ) -> None:
        self.supervised = False
        """Whether a worker that ends is replaced; else that is the end."""
        self.on_news: Callable[[News], None] = lambda _: None
        """Called when a worker is lost and when it is there again."""
        self._run = run
        self._path = path
        self._endpoint = endpoint
        self._lost = lost
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._watched: dict[str, int] = {}  # name → descriptor that is readable when the process has ended
        self._lives: dict[str, int] = {}
        self._wants_spare = spare
        self._spare: subprocess.Popen[bytes] | None = None
        endpoint.on_arrival(self._receive)

    @property
    def running(self) -> Mapping[str, subprocess.Popen[bytes]]:
        """The newest process of each name."""
        return self._running

    def start(self, name: str, life: int = 1) -> None:
        """Start what plays a role: the conductor, or life `life` of a worker."""
        self._run.cause(name).unlink(missing_ok=True)
        role = [name] if name == CONDUCTOR else ["worker", name, str(life)]
        process = self._taken_spare(name, life) or self._begin(role, _threads(self._run, name))
        self._running[name] = process
        self._lives[name] = life
        descriptor = self._watched[name] = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(descriptor, self._exited, name)

    @property
    def spare(self) -> subprocess.Popen[bytes] | None:
        """The process that would become the next worker to be started."""
        return self._spare

    def keep_spare(self) -> None:
        """Have a process ready that can become any worker with as few threads as any, if that is wanted."""
        if self._wants_spare and self._spare is None:
            self._spare = self._begin(["spare"], min(rank.threads for rank in self._run.placement.ranks))

    def _taken_spare(self, name: str, life: int) -> subprocess.Popen[bytes] | None:
        """The spare process, told to be a worker. Its numeric libraries have the threads that they were loaded with."""
        spare = self._spare
        if name == CONDUCTOR or spare is None or spare.stdin is None:
            return None
        if _threads(self._run, name) != min(rank.threads for rank in self._run.placement.ranks):
            return None
        self._spare = None
        if spare.poll() is not None:
            return None
        spare.stdin.write(f"{name} {life}\n".encode())
        spare.stdin.flush()
        return spare

    def _begin(self, role: list[str], threads: int) -> subprocess.Popen[bytes]:
        """Thread counts must be set before numeric libraries load."""
        return subprocess.Popen(  # noqa: S603 - this Python, our own module
            [sys.executable, "-m", "mstar.node", str(self._path), *role],
            stdin=subprocess.PIPE,
            process_group=0,  # a terminal's interrupt is for the server, which ends them in its time
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"},
        )

    def cause(self, name: str) -> str | None:
        """Why a process has ended; None while it runs."""
        process = self._running[name]
        if process.poll() is None:
            return None
        left = self._run.cause(name)
        return f": {left.read_text()}" if left.exists() else f" ended with {_status(process.returncode)}"

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End all: told first, killed after `seconds`."""
        for name in list(self._watched):
            self._unwatch(name)
        loop = asyncio.get_running_loop()
        processes = [*self._running.values(), *([self._spare] if self._spare is not None else [])]
        for process in processes:
            _close_input(process, saying=b"\n")
        due = loop.time() + seconds
        for process in processes:
            try:
                await loop.run_in_executor(None, process.wait, max(0.01, due - loop.time()))
            except subprocess.TimeoutExpired:
                process.kill()
                await loop.run_in_executor(None, process.wait)
        self._endpoint.close()

    # ------------------------------------------------------------------------------------------ inside

    def _exited(self, name: str) -> None:
        self._unwatch(name)
        process = self._running[name]
        process.wait()
        _close_input(process)
        cause = self.cause(name)
        assert cause is not None
        if name == CONDUCTOR:
            self._lost(ConductorLost(name + cause))
        elif not self.supervised:
            self._lost(WorkerLost(name + cause))
        else:
            self._endpoint.send(CONDUCTOR, WorkerExited(name, self._lives[name], cause.strip(": ")))

    def _receive(self) -> None:
        for message in self._endpoint.receive():
            match message:
                case ReplaceWorker():
                    self._replace(message)
                    self.on_news(message)
                case WorkerUp():
                    self.on_news(message)
                    self.keep_spare()
                case GiveUp(cause=cause):
                    self._lost(WorkerLost(f"{cause}, and so do those that take its place"))
                case _:
                    raise TypeError(f"a launcher does not take {type(message).__name__}")

    def _replace(self, message: ReplaceWorker) -> None:
        name = message.worker
        if self._lives[name] >= message.life:
            return
        process = self._running[name]
        if name in self._watched:
            self._unwatch(name)
            process.kill()  # one that is stopped, too
            process.wait()
            _close_input(process)
        self.start(name, message.life)

    def _unwatch(self, name: str) -> None:
        descriptor = self._watched.pop(name)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


def _close_input(process: subprocess.Popen[bytes], saying: bytes = b"") -> None:
    """What is said last is its order to end; one that hears nothing more takes this process for dead."""
    if process.stdin is not None and not process.stdin.closed:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(saying)


def _status(code: int) -> str:
    if code >= 0:
        return f"status {code}"
    try:
        return f"status {code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"status {code}"


def _threads(run: Run, worker: str) -> int:
    return next((rank.threads for rank in run.placement.ranks if rank.worker == worker), 1)
