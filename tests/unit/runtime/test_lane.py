"""Device tensors between workers of a host, on a device that is not there: the driver's calls are stood for."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mstar.bus.wire import decode
from mstar.errors import Rejected
from mstar.messages import Fired
from mstar.tensors import Lease, Many, Rows
from mstar.transport.api import Gone, Transport
from mstar.transport.crates import leases_of
from mstar.transport.inline import InlineTransport
from mstar.transport.lane import on_lane
from mstar.transport.shared import SharedTransport
from mstar.transport.tcp import TcpTransport
from tests.pretend import CUDA, OnDevice, PretendMemory, pretending
from tests.unit.runtime.test_transport import KEY, OWNER, carried, received

SIZE = 1 << 20


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with pretending():
        yield


def big(n: float = 0, size: int = 4096) -> Tensor:
    return torch.arange(size, dtype=torch.float32, device="cuda") + n


def same(one: Tensor, other: Any) -> bool:
    return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one.cpu(), other.cpu())


class Ends:
    """A sender `a` and a receiver `b` with devices, who know each other unless `strangers`."""

    def __init__(self, where: Path, *refuses: str, lane: int = SIZE, strangers: bool = False) -> None:
        self.memories = PretendMemory(), PretendMemory(*refuses)
        self.a = SharedTransport("a", where, size=1 << 20, memory=self.memories[0], lane=lane)
        self.b = SharedTransport("b", where, size=1 << 20, memory=self.memories[1], lane=lane)
        if not strangers:
            self.send(big())
        for memory in self.memories:
            memory.calls.clear()

    def pack(self, value: Any, request: str = "s.1") -> Any:
        return carried(self.a.pack(value, "b", (request, 1)))

    def send(self, value: Any) -> Any:
        return received(self.b, self.pack(value))

    def close(self) -> None:
        self.a.close()
        self.b.close()


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    made = Ends(tmp_path)
    yield made
    made.close()


def leases(packed: Any) -> list[Lease]:
    return [lease for lease in leases_of(packed) if on_lane(lease)]


def test_tensors_of_the_device_come_out_bit_for_bit_on_the_device_and_the_host_carries_nothing(ends: Ends) -> None:
    value: dict[str, Any] = {
        "plain": big(1),
        "half": torch.arange(10_000, device="cuda").to(torch.bfloat16).reshape(100, 100),
        "view": torch.arange(20_000, device="cuda").reshape(200, 100)[:, ::2],
        "many": Many((big(2), "text", None), cut=True),
        "rows": Rows(big(3).reshape(64, 64)),
        "pair": (big(4), [1, {"x": big(5)}]),
    }
    before = dict(ends.a.counters())
    packed = ends.pack(value)
    assert len(leases(packed)) == 7
    opened = received(ends.b, packed)
    assert isinstance(opened, dict)
    for name in ("plain", "half", "view"):
        assert same(value[name], opened[name])
        assert opened[name].device == CUDA
    assert same(value["many"].items[0], opened["many"].items[0])
    assert same(value["rows"].array, opened["rows"].array)
    assert same(value["pair"][1][1]["x"], opened["pair"][1][1]["x"])
    after = ends.a.counters()
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {
        "device_leases": 7,
        "device_bytes": 5 * 4 * 4096 + 20_000 + 80_000,
    }
    assert ends.memories[0].calls == {"write": 7}
    assert ends.memories[1].calls == {"read": 7}
    assert ends.a.census()["leases"] == 0


def test_a_received_tensor_is_its_receivers_own(ends: Ends) -> None:
    sent = big(1)
    packed = ends.pack(sent)
    sent += 5
    opened = received(ends.b, packed)
    assert same(big(1), opened)
    ends.send(big(9))
    assert same(big(1), opened)


def test_arrays_of_the_host_do_not_go_over_the_device(ends: Ends) -> None:
    before = ends.a.counters()["device_leases"]
    opened = ends.send({"numpy": np.arange(4096.0), "torch": torch.arange(4096), "small": torch.ones(3, device="cuda")})
    assert opened["torch"].device.type == "cpu"
    assert opened["small"].device == CUDA
    assert ends.a.counters()["device_leases"] == before


def test_the_first_tensors_go_over_the_host_with_an_offer_until_the_peer_has_mapped_the_arena(tmp_path: Path) -> None:
    ends = Ends(tmp_path, strangers=True)
    first, second = ends.pack(big()), ends.pack(big(1))
    assert leases(first) == leases(second) == []
    for n, packed in enumerate((first, second)):
        opened = received(ends.b, packed)
        assert same(big(n), opened)
        assert opened.device == CUDA  # type: ignore[union-attr]
    assert len(leases(ends.pack(big(2)))) == 1
    assert ends.memories[1].calls["map"] == 1
    assert ends.memories[0].calls["allocate"] == ends.memories[0].calls["export"] == 1
    ends.close()


@pytest.mark.parametrize("refuses", ["map", "none"])
def test_a_peer_that_can_not_map_it_or_has_no_device_gets_its_tensors_over_the_host(
    tmp_path: Path, refuses: str
) -> None:
    own, memory = PretendMemory(), PretendMemory("map") if refuses == "map" else None
    a, b = SharedTransport("a", tmp_path, memory=own), SharedTransport("b", tmp_path, memory=memory)
    for n in range(4):
        packed = carried(a.pack(big(n), "b", OWNER))
        assert leases(packed) == []
        opened = received(b, packed)
        assert same(big(n), opened)
        assert opened.device.type == ("cuda" if memory else "cpu")  # type: ignore[union-attr]
    assert memory is None or memory.calls["map"] == 1
    assert a.counters()["device_refused"] == own.calls["allocate"] == (memory is not None)  # none is asked for a CPU
    assert a.counters()["device_leases"] == 0
    a.close()
    b.close()


@pytest.mark.parametrize("refuses", ["allocate", "export"])
def test_a_device_that_gives_no_arena_is_asked_once(tmp_path: Path, refuses: str) -> None:
    memory = PretendMemory(refuses)
    a, b = SharedTransport("a", tmp_path, memory=memory), SharedTransport("b", tmp_path, memory=PretendMemory())
    for n in range(3):
        assert same(big(n), received(b, carried(a.pack(big(n), "b", OWNER))))
    assert memory.calls[refuses] == 1
    assert not memory.held
    assert a.counters()["device_refused"] == 1
    a.close()
    b.close()


def test_no_device_memory_is_taken_where_no_tensor_leaves(tmp_path: Path) -> None:
    ends = Ends(tmp_path, strangers=True)
    ends.send(np.arange(4096.0))
    assert not ends.memories[0].calls
    ends.close()


def test_a_full_arena_sends_over_the_host_and_has_room_again_when_it_is_read(tmp_path: Path) -> None:
    ends = Ends(tmp_path, lane=1 << 16)
    packed = [ends.pack(big(n)) for n in range(6)]  # of 16 KiB each
    assert [len(leases(each)) for each in packed] == [1, 1, 1, 1, 0, 0]
    assert ends.a.counters()["device_full"] == 2
    for n, each in enumerate(packed):
        assert same(big(n), received(ends.b, each))
    assert len(leases(ends.pack(big()))) == 1
    ends.close()


def test_what_was_freed_can_not_be_read_and_nothing_else_is_freed(ends: Ends) -> None:
    ended, alive = ends.pack(big()), ends.pack(big(1), "s.2")
    assert ends.a.census()["leases"] == 2
    ends.a.free("s.1")
    ends.a.free("s.1")
    with pytest.raises(Gone):
        ends.b.unpack(ended)
    assert same(big(1), received(ends.b, alive))
    assert ends.a.census()["leases"] == 0


def test_what_is_freed_while_it_is_copied_is_not_taken_for_the_value(ends: Ends) -> None:
    packed = ends.pack(big())
    copy = ends.memories[1].read

    def late(address: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        ends.a.free("s.1")
        return copy(address, shape, dtype)

    ends.memories[1].read = late  # type: ignore[method-assign]
    with pytest.raises(Gone):
        ends.b.unpack(packed)


def test_what_is_dropped_unread_is_freed(ends: Ends) -> None:
    ends.b.drop(ends.pack([big(), np.arange(4096.0), big(1)]))
    assert ends.a.census()["leases"] == 0
    other = SharedTransport("b", ends.a._directory, memory=PretendMemory())  # in place of one that is dead
    other.drop(ends.pack(big()))
    assert ends.a.census()["leases"] == 0
    other.close()


def test_a_process_in_anothers_place_that_can_not_map_the_arena_ends_the_request_with_a_cause(ends: Ends) -> None:
    other = SharedTransport("b", ends.a._directory, memory=PretendMemory("map"))
    with pytest.raises(Rejected, match="device memory: map: not permitted, of a") as told:
        other.unpack(ends.pack(big()))
    assert told.value.code == "device_memory"
    other.close()


def test_what_the_device_has_no_room_for_ends_its_request_alone(ends: Ends) -> None:
    mapped, uploaded = ends.pack(big()), ends.pack(torch.ones(3, device="cuda"))
    ends.memories[1].refuses = {"read", "upload"}
    for packed, call in ((mapped, "read"), (uploaded, "upload")):
        with pytest.raises(Rejected, match=f"device memory: {call}: not permitted"):
            ends.b.unpack(packed)
    ends.memories[1].refuses = set()
    assert same(big(1), ends.send(big(1)))


def test_what_can_not_be_copied_into_the_arena_goes_over_the_host(ends: Ends) -> None:
    ends.memories[0].refuses = {"write"}
    packed = ends.pack(big())
    assert leases(packed) == []
    assert same(big(), received(ends.b, packed))
    assert ends.a.counters()["device_refused"] == 1
    ends.a.free("s.1")
    assert ends.a.census()["leases"] == 0


def test_a_worker_that_is_gone_is_unmapped_and_its_successor_is_not_taken_for_it(tmp_path: Path) -> None:
    ends = Ends(tmp_path)
    old = ends.pack(big())
    ends.a.close()
    ends.b.forget("a")
    assert ends.memories[1].calls["unmap"] == 1
    assert not ends.memories[1].held
    with pytest.raises(Gone):
        ends.b.unpack(old)
    ends.a = SharedTransport("a", tmp_path, memory=PretendMemory())
    assert leases(ends.pack(big())) == []
    assert same(big(1), ends.send(big(1)))
    assert len(leases(again := ends.pack(big(2)))) == 1
    assert same(big(2), received(ends.b, again))
    ends.close()


def test_a_successor_whose_predecessors_end_was_not_told_replaces_its_mapping(tmp_path: Path) -> None:
    ends = Ends(tmp_path)
    before = ends.a
    ends.a = SharedTransport("a", tmp_path, memory=PretendMemory())
    ends.send(big())
    assert len(ends.memories[1].held) == 1
    assert same(big(1), ends.send(big(1)))
    before.close()
    ends.close()


def test_memory_that_peers_may_have_mapped_is_not_freed_before_its_process_ends(tmp_path: Path) -> None:
    ends = Ends(tmp_path)
    ends.close()
    assert "free" not in ends.memories[0].calls
    assert ends.memories[1].calls["unmap"] == 1


@pytest.mark.parametrize("kind", ["inline", "tcp"])
def test_other_transports_carry_them_over_the_host_to_the_receivers_device(kind: str) -> None:
    def end() -> Transport:
        memory = PretendMemory()
        return InlineTransport(memory) if kind == "inline" else TcpTransport(KEY, memory=memory)

    a, b = end(), end()
    opened = received(b, carried(a.pack({"big": big(), "host": torch.arange(4096)}, "b", OWNER)))
    assert isinstance(opened, dict)
    assert same(big(), opened["big"])
    assert opened["big"].device == CUDA
    assert opened["host"].device.type == "cpu"
    a.close()
    b.close()


CHILD = """
import sys
from pathlib import Path
import torch
from mstar.bus.wire import Envelope, encode
from mstar.messages import Fired
from mstar.transport.shared import SharedTransport
from tests.pretend import PretendMemory, pretending

def tell(packed):
    frame = encode(Envelope("a", 1, Fired("s.1", 1, packed)))
    sys.stdout.buffer.write(len(frame).to_bytes(4, "little") + frame)
    sys.stdout.flush()
    sys.stdin.buffer.read(1)

with pretending():
    end = SharedTransport("a", Path(sys.argv[1]), memory=PretendMemory(), lane=1 << 24)
    for n in range(3):
        tell(end.pack(torch.arange(1 << 20, dtype=torch.float32, device="cuda") + n, "b", ("s.1", 1)))
"""


class Child:
    """A sender in a process of its own."""

    def __init__(self, where: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(where)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def told(self) -> Any:
        assert self.process.stdout is not None
        frame = self.process.stdout.read(int.from_bytes(self.process.stdout.read(4), "little"))
        message = decode(frame).body
        assert isinstance(message, Fired)
        return message.outputs

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


def test_between_two_processes_and_through_every_kind_of_death(tmp_path: Path) -> None:
    wanted = torch.arange(1 << 20, dtype=torch.float32)
    memory = PretendMemory()
    b = SharedTransport("b", tmp_path, memory=memory)
    for mapped in (True, False):
        child = Child(tmp_path)
        over_host = child.told()
        assert leases(over_host) == []
        assert torch.equal(received(b, over_host).cpu(), wanted)  # type: ignore[union-attr]
        child.go_on()
        first = child.told()
        assert len(leases(first)) == 1
        if mapped:
            opened = b.unpack(first)
            assert isinstance(opened, OnDevice)
            assert torch.equal(opened.cpu(), wanted + 1)
        child.go_on()
        second = child.told()
        if not mapped:
            b.forget("a")
        child.kill()
        for packed in (first, second):
            with pytest.raises(Gone):
                b.unpack(packed)
            b.drop(packed)
        b.forget("a")
        assert not memory.held
    b.close()
