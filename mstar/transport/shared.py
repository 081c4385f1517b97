"""Arrays between processes of one host go through shared memory: copied in by the sender, out by the receiver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mstar.tensors import Lease, Output
from mstar.transport.api import INLINE, Gone, Owner
from mstar.transport.arena import Arena, PeerArena
from mstar.transport.crates import crate, leases_of, uncrate

ARENA_BYTES = 256 << 20
"""Size of a worker's arena; only what was written to takes memory."""


class SharedTransport:
    """A worker's arena, and those of its peers as they come to be known.

    `directory`: where the workers of one server leave a note of their arenas. A peer that left none, or whose arena can
    not be opened (another host, another user), gets its arrays inside the messages; so does everyone when the arena is
    full, and for small ones.
    """

    descriptor: int | None = None

    def __init__(self, name: str, directory: Path, *, size: int = ARENA_BYTES, smallest: int = INLINE) -> None:
        self._arena = Arena(name, size)
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
        return crate(value, lambda array: self._put(array, owner[0], reachable))

    def here(self, value: Any) -> bool:  # noqa: ARG002 - it was written before its message
        return True

    def unpack(self, value: Any) -> Output:
        opened: Output = uncrate(value, self._get)
        return opened

    def drop(self, value: Any) -> None:
        for lease in leases_of(value):
            try:
                self._peer(lease.arena).drop(lease)
            except Gone:
                return

    def free(self, request: str) -> None:
        self._arena.free(request)

    def census(self) -> Mapping[str, int]:
        return {"leases": self._arena.leases}

    def counters(self) -> Mapping[str, int]:
        return self._counters

    def close(self) -> None:
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
            owner = arena.partition(":")[0]
            for known in [name for name in self._peers if name.partition(":")[0] == owner]:
                self._peers.pop(known).close()  # of a process that was that worker before
            self._peers[arena] = peer
        return peer

    def _reaches(self, to: str) -> bool:
        """Whether a peer can open our arena: it can if we can open its."""
        if to in self._reachable:
            return True
        try:
            _, pid, number, inode = (self._directory / f"{to}.arena").read_text().rsplit(":", 3)
            if Path(f"/proc/{pid}/fd/{number}").stat().st_ino != int(inode):
                return False
        except (OSError, ValueError):
            return False
        self._reachable.add(to)
        return True
