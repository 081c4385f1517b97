"""How a process of the runtime learns that it has to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHILD = """
import sys
from pathlib import Path
from mstar.bus.zeromq import ZmqEndpoint
from mstar.node.life import Life

endpoint = ZmqEndpoint(Path(sys.argv[1]), "child")
life = Life(endpoint)
print("up", flush=True)
while life.check():
    endpoint.wait(10.0)
print("orphaned" if life.orphaned else "told")
endpoint.close()
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def last_word(child: subprocess.Popen[bytes]) -> str:
    assert child.stdout is not None
    return child.stdout.read().decode().strip()


def test_a_line_is_the_order_to_end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.write(b"\n")
    child.stdin.close()
    assert last_word(child) == "told"


def test_silence_is_a_dead_parent_also_while_it_is_still_dying(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.close()  # as the kernel does for a dying process, before it has another parent
    assert last_word(child) == "orphaned"


def test_a_signal_is_an_order_too(child: subprocess.Popen[bytes]) -> None:
    os.kill(child.pid, signal.SIGTERM)
    assert last_word(child) == "told"
