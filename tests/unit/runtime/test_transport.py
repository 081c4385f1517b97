"""Arrays between workers: bit for bit, freed exactly once, nothing left behind."""

from __future__ import annotations

import os
import random
import secrets
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from mstar.bus.wire import Envelope, decode, encode
from mstar.messages import Fired
from mstar.tensors import Many, Output, Rows
from mstar.transport.api import Gone, Transport
from mstar.transport.arena import ALIGN, Arena, PeerArena
from mstar.transport.crates import leases_of
from mstar.transport.inline import InlineTransport
from mstar.transport.local import LocalTransport, Shelf
from mstar.transport.shared import SharedTransport
from mstar.transport.tcp import TcpTransport
from tests.absent import absent

OWNER = ("s.1", 1)
KEY = bytes(range(32))
BIG = np.arange(4096, dtype=np.float32)


def pair_of(kind: str, where: Path) -> tuple[Transport, Transport]:
    """A sender `a` and a receiver `b`."""
    match kind:
        case "inline":
            return InlineTransport(), InlineTransport()
        case "local":
            shelf = Shelf()
            return LocalTransport(shelf), LocalTransport(shelf)
        case "shared":
            return SharedTransport("a", where, size=1 << 20), SharedTransport("b", where, size=1 << 20)
        case _:
            return TcpTransport(KEY), TcpTransport(KEY)


@pytest.fixture(params=["inline", "local", "shared", "tcp"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Transport, Transport]]:
    ends = pair_of(request.param, tmp_path)
    yield ends
    for end in ends:
        end.close()


def carried(packed: Any) -> Any:
    """What a message with the packed value is when it has come over the bus."""
    message = decode(encode(Envelope("a", 1, Fired("s.1", 1, packed)))).body
    assert isinstance(message, Fired)
    return message.outputs


def received(end: Transport, packed: Any) -> Output:
    """Unpacked, when it has come."""
    while not end.here(packed):
        assert end.descriptor is not None
        select.select([end.descriptor], [], [], 30)
    return end.unpack(packed)


def same(one: Any, other: Any) -> bool:
    match one:
        case torch.Tensor():
            return isinstance(other, torch.Tensor) and one.dtype == other.dtype and bool(torch.equal(one, other))
        case np.ndarray() | np.generic():
            return type(one) is type(other) and one.dtype == other.dtype and np.array_equal(one, other)
        case Many(items=items, cut=cut):
            return isinstance(other, Many) and cut == other.cut and same(items, other.items)
        case Rows(array=array, cut=cut):
            return isinstance(other, Rows) and cut == other.cut and same(array, other.array)
        case list() | tuple():
            return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
        case dict():
            return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
        case _:
            return type(one) is type(other) and one == other


VALUE: dict[str, Any] = {
    "numpy": BIG.reshape(64, 64),
    "turned": BIG.reshape(64, 64).T,
    "torch": torch.arange(10_000, dtype=torch.bfloat16).reshape(100, 100),
    "view": torch.arange(10_000).reshape(100, 100)[:, ::2],
    "small": torch.tensor(3.5),
    "empty": torch.zeros(0, 5),
    "scalar": np.float32(2.5),
    "many": Many((BIG, "text", None), cut=True),
    "rows": Rows(torch.ones(50, 50)),
    "pair": (BIG, [1, b"bytes", {"x": 1.5, "flags": BIG > 3}]),
}


def test_what_comes_out_is_what_went_in_and_belongs_to_who_has_it(pair: tuple[Transport, Transport]) -> None:
    a, b = pair
    opened = received(b, carried(a.pack(VALUE, "b", OWNER)))
    assert same(VALUE, opened)
    if not isinstance(a, LocalTransport):
        opened["torch"][:] = 0  # type: ignore[index,call-overload]
        assert same(VALUE["torch"], torch.arange(10_000, dtype=torch.bfloat16).reshape(100, 100))
    assert a.census().get("leases", 0) == 0


def test_what_was_freed_can_not_be_unpacked_and_nothing_else_is_freed(pair: tuple[Transport, Transport]) -> None:
    a, b = pair
    if isinstance(a, InlineTransport):
        return
    ended, alive = carried(a.pack(BIG, "b", OWNER)), carried(a.pack(BIG + 1, "b", ("s.2", 2)))
    assert a.census()["leases"] == 2
    a.free("s.1")
    a.free("s.1")
    with pytest.raises(Gone):
        received(b, ended)
    assert same(BIG + 1, received(b, alive))
    assert a.census()["leases"] == 0


def test_what_is_dropped_unread_is_freed_too(pair: tuple[Transport, Transport]) -> None:
    a, b = pair
    packed = carried(a.pack([BIG, BIG], "b", OWNER))
    b.here(packed)
    b.drop(packed)
    if isinstance(a, TcpTransport):
        a.free("s.1")  # its owner keeps what nobody fetches until the request ends
    assert a.census().get("leases", 0) == 0


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_side=6)))
def test_any_array_travels(array: np.ndarray) -> None:
    end = InlineTransport()
    opened = end.unpack(carried(end.pack(array, "b", OWNER)))
    assert isinstance(opened, np.ndarray)
    assert opened.dtype == array.dtype
    assert opened.tobytes() == array.tobytes()
    assert opened.shape == array.shape


def test_what_can_not_travel_is_named(tmp_path: Path) -> None:
    for end in (InlineTransport(), SharedTransport("a", tmp_path)):
        for value in (object(), np.array([object()])):
            with pytest.raises(TypeError, match="can not travel"):
                end.pack(value, "b", OWNER)  # type: ignore[arg-type]
        end.close()


def test_references_are_not_copied() -> None:
    shelf = Shelf()
    a, b = LocalTransport(shelf), LocalTransport(shelf)
    assert b.unpack(carried(a.pack(BIG, "b", OWNER))) is BIG
    assert a.counters() == {"inline_bytes": 0, "shared_bytes": 0, "leases_made": 1}


# ---------------------------------------------------------------------------------------------- shared memory


def test_small_ones_go_inside_the_message_large_ones_do_not(tmp_path: Path) -> None:
    a, b = pair_of("shared", tmp_path)
    frame = encode(Envelope("a", 1, Fired("s.1", 1, a.pack([BIG, BIG[:4]], "b", OWNER))))
    assert len(frame) < 500
    assert a.counters() == {"inline_bytes": 16, "shared_bytes": BIG.nbytes, "leases_made": 1, "arena_full": 0}
    stranger = a.pack(BIG, "nobody", OWNER)
    assert leases_of(stranger) == []
    assert same(BIG, b.unpack(carried(stranger)))


def test_a_full_arena_sends_inside_messages_and_has_room_again_when_they_are_read(tmp_path: Path) -> None:
    a, b = SharedTransport("a", tmp_path, size=40_000), SharedTransport("b", tmp_path, size=40_000)
    packed = [carried(a.pack(BIG + n, "b", OWNER)) for n in range(4)]
    assert [len(leases_of(each)) for each in packed] == [1, 1, 0, 0]
    for n, each in enumerate(packed):
        assert same(BIG + n, b.unpack(each))
    assert len(leases_of(a.pack(BIG, "b", OWNER))) == 1


def test_an_arena_gives_each_byte_to_one_lease_at_a_time_and_gets_all_back() -> None:
    draw = random.Random(3)
    arena = Arena("a", 64 * ALIGN)
    peer = PeerArena(arena.name)
    alive: dict[int, tuple[Any, bytes, str]] = {}
    made = read = ended = 0
    for step in range(3000):
        body = draw.randbytes(draw.randrange(1, 9 * ALIGN))
        request = f"s.{draw.randrange(5)}"
        lease = arena.put(np.frombuffer(body, dtype=np.uint8), request)
        if lease is not None:
            made += 1
            alive[lease.number] = (lease, body, request)
        while alive and (lease is None or draw.random() < 0.4):
            number = draw.choice(sorted(alive))
            held, body, _ = alive.pop(number)
            assert peer.read(held) == body
            read += 1
            lease = held
        if step % 50 == 0:
            over = f"s.{draw.randrange(5)}"
            arena.ledger.free(over)
            for number in [number for number, (_, _, owner) in alive.items() if owner == over]:
                with pytest.raises(Gone):
                    peer.read(alive.pop(number)[0])
                ended += 1
        assert arena.ledger.leases == len(alive)
    for held, body, _ in alive.values():
        assert peer.read(held) == body
    assert arena.ledger.leases == 0
    assert made == read + ended + len(alive) == arena.ledger.freed
    assert arena.ledger.free_bytes == arena.ledger.size
    peer.close()
    arena.close()


def test_a_worker_that_takes_anothers_place_is_not_taken_for_it(tmp_path: Path) -> None:
    before, b = pair_of("shared", tmp_path)
    old = carried(before.pack(BIG, "b", OWNER))
    before.close()
    after = SharedTransport("a", tmp_path, size=1 << 20)
    new = carried(after.pack(BIG + 1, "b", OWNER))
    with pytest.raises(Gone):
        b.unpack(old)
    assert same(BIG + 1, b.unpack(new))
    assert same(BIG, after.unpack(carried(b.pack(BIG, "a", OWNER))))


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


CHILD = """
import sys
from pathlib import Path
import numpy as np
from mstar.bus.wire import Envelope, encode
from mstar.messages import Fired
from mstar.transport.shared import SharedTransport
end = SharedTransport("a", Path(sys.argv[1]), size=1 << 24)
packed = end.pack(np.arange(1 << 20, dtype=np.float32), "b", ("s.1", 1))
frame = encode(Envelope("a", 1, Fired("s.1", 1, packed)))
sys.stdout.buffer.write(len(frame).to_bytes(4, "little") + frame)
sys.stdout.flush()
sys.stdin.read()
"""


def test_a_process_killed_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    b = SharedTransport("b", tmp_path)
    before, shm = _descriptors(), sorted(Path("/dev/shm").iterdir())
    for reading in (True, False):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        assert child.stdin is not None
        frame = child.stdout.read(int.from_bytes(child.stdout.read(4), "little"))
        message = decode(frame).body
        assert isinstance(message, Fired)
        if reading:
            assert same(np.arange(1 << 20, dtype=np.float32), b.unpack(message.outputs))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdin.close()
        child.stdout.close()
        if not reading:
            with pytest.raises(Gone):
                b.unpack(message.outputs)
        assert sorted(Path("/dev/shm").iterdir()) == shm
    b.close()
    assert _descriptors() <= before


# ---------------------------------------------------------------------------------------------- TCP


def test_a_stranger_without_the_key_gets_nothing() -> None:
    a, b = TcpTransport(KEY), TcpTransport(secrets.token_bytes(32))
    packed = carried(a.pack(BIG, "b", OWNER))
    with pytest.raises(Gone):
        received(b, packed)
    assert a.census()["leases"] == 1
    a.close()
    b.close()


def test_many_large_arrays_at_once_arrive_whole() -> None:
    a, b = pair_of("tcp", Path())
    arrays = [np.random.default_rng(n).normal(size=50_000) for n in range(40)]
    packed = [carried(a.pack(array, "b", OWNER)) for array in arrays]
    for each in packed:
        b.here(each)
    for array, each in zip(reversed(arrays), reversed(packed), strict=True):
        assert same(array, received(b, each))
    assert a.census() == {"leases": 0, "fetched": 0}
    a.close()
    with pytest.raises(Gone):
        received(b, carried(a.pack(BIG, "b", OWNER)))
    b.close()


OTHER_HOST = """
import sys
import numpy as np
from mstar.bus.wire import Envelope, encode
from mstar.messages import Fired
from mstar.transport.tcp import TcpTransport
end = TcpTransport(bytes(range(32)), host=sys.argv[1])
packed = end.pack([np.arange(1 << 18, dtype=np.float32), "text"], "b", ("s.1", 1))
frame = encode(Envelope("a", 1, Fired("s.1", 1, packed)))
sys.stdout.buffer.write(len(frame).to_bytes(4, "little") + frame)
sys.stdout.flush()
sys.stdin.read()
"""


def _ip(*arguments: str) -> bool:
    tool = shutil.which("ip")
    return tool is not None and not subprocess.run([tool, *arguments], capture_output=True, check=False).returncode


def test_between_two_network_namespaces_with_separate_shared_memory() -> None:
    """The sender has a network, and a /dev/shm, of its own; what it sends comes over the wire between the two."""
    space, ours, theirs = f"mstar{os.getpid()}", f"ma{os.getpid()}", f"mb{os.getpid()}"
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    if unshare is None or ip is None or not _ip("netns", "add", space):
        absent("network namespaces can not be made here (no ip or unshare, or not permitted)")
    try:
        for command in (
            ("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", space),
            ("addr", "add", "10.213.77.1/30", "dev", ours),
            ("link", "set", ours, "up"),
            ("-n", space, "addr", "add", "10.213.77.2/30", "dev", theirs),
            ("-n", space, "link", "set", theirs, "up"),
        ):
            if not _ip(*command):
                absent(f"`ip {' '.join(command)}` is not permitted here")
        inside = f"mount -t tmpfs none /dev/shm && exec {sys.executable} -c '{OTHER_HOST}' 10.213.77.2"
        child = subprocess.Popen(
            [ip or "", "netns", "exec", space, unshare or "", "-m", "sh", "-c", inside],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stdin is not None
        frame = child.stdout.read(int.from_bytes(child.stdout.read(4), "little"))
        message = decode(frame).body
        assert isinstance(message, Fired)
        [lease] = leases_of(message.outputs)
        assert lease.arena.startswith("10.213.77.2:")
        end = TcpTransport(KEY, host="10.213.77.1")
        assert same([np.arange(1 << 18, dtype=np.float32), "text"], received(end, message.outputs))
        end.close()
        child.stdin.close()
        child.wait()
        child.stdout.close()
    finally:
        _ip("netns", "del", space)
        _ip("link", "del", ours)
