"""Arrays between processes of one host go through shared memory, tensors of a device through device memory: copied in
by the sender, out by the receiver.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mstar.carried import Crate
from mstar.tensors import Lease, Output
from mstar.transport.api import INLINE, Gone, Owner
from mstar.transport.arena import Arena, PeerArena
from mstar.transport.crates import crate, dtype_of, leases_of, offer, over_host, uncrate
from mstar.transport.device import DeviceMemory
from mstar.transport.files import alive, owner_of
from mstar.transport.lane import LANE_BYTES, Lane, on_lane

ARENA_BYTES = 256 << 20
"""Size of a worker's arena; only what was written to takes memory."""


class SharedTransport:
    """A worker's arena, and those of its peers as they come to be known.

    `directory`: where the workers of one server leave a note of their arenas. A peer that left none, or whose arena can
    not be opened (another host, another user), gets its arrays inside the messages; so does everyone when the arena is
    full, and for small ones. `memory`: of the rank's device; `lane`: bytes of its arena there (`mstar.transport.lane`).
    """

    descriptor: int | None = None

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        size: int = ARENA_BYTES,
        smallest: int = INLINE,
        memory: DeviceMemory | None = None,
        lane: int = LANE_BYTES,
    ) -> None:
        self._arena = Arena(name, size)
        self._lane = Lane(name, directory, memory, lane)
        self._directory = directory
        self._smallest = smallest
        self._peers: dict[str, PeerArena] = {}  # by the arena's name
        self._reachable: set[str] = set()
        self._counters = {"inline_bytes": 0, "shared_bytes": 0, "leases_made": 0, "arena_full": 0}
        note = directory / f"{name}.arena"
        fresh = note.with_suffix(".arena.new")
        fresh.write_text(self._arena.name)
        fresh.rename(note)

    def pack(self, value: Output, to: str, owner: Owner) -> Any:
        reachable = self._reaches(to)

        def put(array: np.ndarray) -> bytes | Lease:
            return self._put(array, owner[0], reachable)

        def put_tensor(tensor: Tensor) -> Any:
            if not reachable or tensor.nbytes <= self._smallest:
                return over_host(tensor, put)
            lease = self._lane.put(tensor, to, owner[0])
            if lease is not None:
                return Crate("mapped", dtype_of(tensor), tuple(tensor.shape), lease)
            packed, arena = over_host(tensor, put), self._lane.offer(to)
            return packed if arena is None else offer(arena, packed)

        return crate(value, put, put_tensor)

    def here(self, value: Any) -> bool:  # noqa: ARG002 - it was written before its message
        return True

    def unpack(self, value: Any) -> Output:
        opened: Output = uncrate(value, self._get, self._lane)
        return opened

    def drop(self, value: Any) -> None:
        for lease in leases_of(value):
            with contextlib.suppress(Gone):
                if on_lane(lease):
                    self._lane.drop(lease)
                else:
                    self._peer(lease.arena).drop(lease)

    def free(self, request: str) -> None:
        self._arena.ledger.free(request)
        self._lane.free(request)

    def forget(self, worker: str) -> None:
        self._lane.forget(worker)
        for arena in [arena for arena in self._peers if owner_of(arena) == worker]:
            self._peers.pop(arena).close()

    def census(self) -> Mapping[str, int]:
        return {"leases": self._arena.ledger.leases + self._lane.leases}

    def counters(self) -> Mapping[str, int]:
        return {**self._counters, **self._lane.counters()}

    def close(self) -> None:
        self._lane.close()
        for peer in self._peers.values():
            peer.close()
        self._arena.close()

    def _put(self, array: np.ndarray, request: str, reachable: bool) -> bytes | Lease:
        if reachable and array.nbytes > self._smallest:
            lease = self._arena.put(array, request)
            if lease is not None:
                self._counters["shared_bytes"] += array.nbytes
                self._counters["leases_made"] += 1
                return lease
            self._counters["arena_full"] += 1
        self._counters["inline_bytes"] += array.nbytes
        return array.tobytes()

    def _get(self, body: bytes | memoryview | Lease) -> bytes | bytearray | memoryview:
        return self._peer(body.arena).read(body) if isinstance(body, Lease) else body

    def _peer(self, arena: str) -> PeerArena:
        peer = self._peers.get(arena)
        if peer is None:
            peer = PeerArena(arena)
            for known in [name for name in self._peers if owner_of(name) == owner_of(arena)]:
                self._peers.pop(known).close()  # of a process that was that worker before
            self._peers[arena] = peer
        return peer

    def _reaches(self, to: str) -> bool:
        """Whether a peer can open our arena: it can if we can open its."""
        if to in self._reachable:
            return True
        try:
            name = (self._directory / f"{to}.arena").read_text()
        except OSError:
            return False
        if not alive(name):
            return False
        self._reachable.add(to)
        return True
