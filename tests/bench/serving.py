"""The real server with the voice family, as its own processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError

ROOT = Path(__file__).parents[2]
LOADING_SECONDS = 120
LINES = 20
"""Of the server's log that are shown when a row fails."""
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Served:
    """`url` of HTTP, `process` id of the server."""

    url: str
    process: int

    @property
    def processes(self) -> tuple[int, ...]:
        """Ids of the server and of everything it started."""
        return (self.process, *_children(self.process))

    def cpu_seconds(self) -> float:
        """User and system time of all its processes since each began."""
        return sum(_cpu_seconds(each) for each in self.processes)


@contextmanager
def served(*arguments: str, family: str = "voice") -> Iterator[Served]:
    """`mstar serve FAMILY`, from the moment it is ready; told to end afterwards. Raises RuntimeError if it fails."""
    port = free_port()
    command = ["-m", "server.cli", "serve", family, "--port", str(port), "--drain-seconds", "0", *arguments]
    with process(command, port, "/readyz") as server:
        yield server


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def process(arguments: Sequence[str], port: int, ready: str) -> Iterator[Served]:
    """A Python program that serves HTTP at a port, from the moment that the path `ready` answers with 200."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=log
        )
        server = Served(f"http://127.0.0.1:{port}", process.pid)
        try:
            _wait_until_ready(server, process, ready)
            yield server
        except BaseException:
            log.seek(0)
            sys.stderr.write("".join(log.readlines()[-LINES:]))
            raise
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_ready(server: Served, process: subprocess.Popen[bytes], ready: str) -> None:
    deadline = time.monotonic() + LOADING_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(f"{server.url}{ready}", timeout=10):
                return
        except (HTTPError, URLError):
            time.sleep(0.1)
    raise RuntimeError(f"the server was not ready after {LOADING_SECONDS} s")


def _children(process: int) -> Iterator[int]:
    """Ids of all processes below one, as /proc has them."""
    for folder in Path(f"/proc/{process}/task").iterdir():
        for child in (folder / "children").read_text().split():
            yield int(child)
            yield from _children(int(child))


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK
