"""A real server with the toy family, as its own processes, for unmodified clients."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest

from tests.clients.ports import unused_port

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Serving:
    """`url` of HTTP, `process` id of the server; `certificate` that it shows, if it speaks TLS."""

    url: str
    process: int
    certificate: Path | None = None

    @property
    def parties(self) -> dict[str, int]:
        """The runtime's processes below it: conductor, worker.… → id."""
        found = {}
        for task in Path(f"/proc/{self.process}/task").iterdir():
            for child in (task / "children").read_text().split():
                words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
                if "mstar.node" in words:
                    _, _, *role = words[words.index("mstar.node") :]
                    found[role[1] if role[0] == "worker" else role[0]] = int(child)
        return found

    def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        try:
            trust = ssl.create_default_context(cafile=self.certificate) if self.certificate else None
            with urllib.request.urlopen(self.url + path, timeout=10, context=trust) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as refusal:
            return refusal.code, refusal.read().decode()


def serving(*arguments: str, certificate: Path | None = None) -> Iterator[Serving]:
    """Start `mstar serve`, wait until it is ready, stop it with SIGTERM at the end."""
    port = unused_port()
    command = [sys.executable, "-m", "server.cli", "serve", *arguments, "--port", str(port), "--drain-seconds", "0"]
    process = subprocess.Popen(command, cwd=ROOT)
    root = "http://127.0.0.1" if certificate is None else "https://localhost"
    server = Serving(f"{root}:{port}", process.pid, certificate)
    try:
        while True:
            assert process.poll() is None, f"the server ended with status {process.returncode}"
            try:
                if server.get("/readyz")[0] == 200:
                    break
            except (URLError, TimeoutError):
                process_waits(process)
        yield server
    finally:
        process.terminate()
        assert process.wait(30) == 0


def process_waits(process: subprocess.Popen[bytes]) -> None:
    """Give the server a moment, or notice that it has ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.1)


@pytest.fixture(scope="session")
def toy_server() -> Iterator[Serving]:
    """One toy server for all tests of clients."""
    yield from serving("toy")


PLANNER, POLICY = "tests.painter.model", "tests.painter.watcher"
"""Families for robots, by their module paths."""


@pytest.fixture(scope="session")
def painters() -> Iterator[Serving]:
    """A planner, a policy of four cameras, and a family that hears, for all tests of robots over WebRTC."""
    yield from serving(PLANNER, POLICY, "toy")
