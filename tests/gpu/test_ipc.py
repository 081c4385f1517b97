"""Device tensors between two processes: what comes over CUDA IPC is what comes by reference."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mstar.bus.wire import decode
from mstar.transport.api import Gone, Transport
from mstar.transport.choose import transport_of
from mstar.transport.crates import leases_of
from mstar.transport.cuda import CudaMemory
from mstar.transport.device import Refused
from mstar.transport.lane import on_lane
from tests.absent import absent
from tests.gpu.sending import VALUES, value

pytestmark = pytest.mark.gpu

BIG = 5  # tensors of a value that go through device memory


class Sender:
    """Worker `a` in a process of its own."""

    def __init__(self, where: Path, device: str) -> None:
        command = [sys.executable, "-m", "tests.gpu.sending", str(where), device]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def told(self) -> tuple[Any, int]:
        """What it packed, and how many tensors it has sent through device memory so far."""
        frame, counted = self._part(), self._part()
        message: Any = decode(frame).body
        return message.outputs, int(counted)

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b".")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _part(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.read(int.from_bytes(self.process.stdout.read(4), "little"))


@pytest.fixture
def receiver(cuda: str, tmp_path: Path) -> Iterator[Transport]:
    end = transport_of("shared", "b", tmp_path, "127.0.0.1", "cuda:0")
    yield end
    end.close()


def check(opened: Any, wanted: dict[str, Any], device: torch.device) -> None:
    assert opened.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert opened[name].dtype == tensor.dtype
        assert torch.equal(opened[name].cpu(), tensor.cpu()), name
        assert opened[name].device == (torch.device("cpu") if name == "host" else device)


@pytest.mark.parametrize("theirs", [0, 1])
def test_what_comes_over_ipc_is_what_comes_by_reference(receiver: Transport, tmp_path: Path, theirs: int) -> None:
    """Between processes of one device, and of two that reach each other."""
    if theirs >= torch.cuda.device_count():
        absent(f"there is no device cuda:{theirs}")
    sender = Sender(tmp_path, f"cuda:{theirs}")
    sent = 0
    for n in range(VALUES):
        packed, sent = sender.told()
        leases = [lease for lease in leases_of(packed) if on_lane(lease)]
        assert len(leases) == (BIG if n and sent else 0)
        opened = receiver.unpack(packed)
        check(opened, value(n, "cpu"), torch.device("cuda", 0))
        sender.go_on()
    sender.kill()
    if not sent:
        absent(f"device memory of cuda:{theirs} can not be mapped by cuda:0 here: {receiver.counters()}")
    assert sent == BIG * (VALUES - 1)


def test_a_received_tensor_can_be_computed_with_while_others_come(receiver: Transport, tmp_path: Path) -> None:
    """Their memory comes from a stream of the transport's own, and is used on the device's main stream."""
    sender = Sender(tmp_path, "cuda:0")
    sums = []
    for n in range(VALUES):
        opened: Any = receiver.unpack(sender.told()[0])
        plain = opened["plain"]
        for _ in range(50):  # keeps the main stream busy while the next value comes
            plain = plain * 1.0
        sums.append((n, plain.double().sum()))
        del opened, plain
        sender.go_on()
    sender.kill()
    for n, total in sums:
        torch.testing.assert_close(total.cpu(), value(n, "cpu")["plain"].double().sum())


def test_what_a_dead_sender_left_is_not_read_and_its_memory_is_let_go(receiver: Transport, tmp_path: Path) -> None:
    sender = Sender(tmp_path, "cuda:0")
    receiver.unpack(sender.told()[0])
    sender.go_on()
    packed, sent = sender.told()
    if not sent:
        sender.kill()
        absent("CUDA IPC is refused here")
    sender.kill()
    for _ in range(2):
        with pytest.raises(Gone):
            receiver.unpack(packed)
        receiver.drop(packed)
        receiver.forget("a")
    assert float(torch.ones(1000, device="cuda").sum()) == 1000


def test_a_call_that_the_driver_refuses_spoils_nothing_that_follows(cuda: str) -> None:
    memory = CudaMemory(cuda)
    with pytest.raises(Refused, match="cudaMalloc"):
        memory.allocate(1 << 60)
    with pytest.raises(Refused, match="cudaIpcOpenMemHandle"):
        memory.map(bytes(64))
    assert float(torch.ones(1000, device=cuda).sum()) == 1000
    address = memory.allocate(1 << 20)
    given = torch.randn(300, 100, device=cuda)
    memory.write(address + 4096, given.T)
    assert torch.equal(memory.read(address + 4096, (100, 300), torch.float32), given.T)
    assert torch.equal(memory.upload(given.cpu()), given)
    memory.free(address)
