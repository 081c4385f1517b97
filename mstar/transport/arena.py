"""One worker's shared memory: an anonymous file that its peers map, cut into leases (numpy only).

The file has no name anywhere, so nothing of it outlives the processes that have it open, however they end. Peers of the
same user open it through `/proc/<pid>/fd`. Before each lease's bytes lies a head of two numbers: whose lease it is, and
whether its receiver has read it. The owner takes read ones back when it needs room; a receiver that finds another
number there, before or after it has copied, knows that the lease was freed.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

from mstar.tensors import Lease
from mstar.transport.api import Gone

ALIGN = 64
HEAD = ALIGN
_NUMBER, _READ = 0, 1
_SPREAD = 0x9E3779B97F4A7C15  # odd: products with it are all different, and like nothing that arrays are full of


@dataclass(frozen=True, slots=True)
class Held:
    """A lease that its receiver has not read yet, as far as is known."""

    request: str
    offset: int  # of its head
    size: int  # with the head


class Arena:
    """First fit over one run of bytes. Not for several threads."""

    def __init__(self, owner: str, size: int) -> None:
        self._file = os.memfd_create(f"mstar-{owner}", os.MFD_CLOEXEC)
        self._size = -(-size // ALIGN) * ALIGN
        os.ftruncate(self._file, self._size)
        self._map = mmap.mmap(self._file, self._size)
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        self._heads = np.frombuffer(self._map, dtype=np.uint64)
        self.name = f"{owner}:{os.getpid()}:{self._file}:{os.fstat(self._file).st_ino}"
        self._held: dict[int, Held] = {}
        self._free: list[tuple[int, int]] = [(0, self._size)]  # (offset, size), ascending, never adjacent
        self._count = 0
        self.freed = 0

    def put(self, array: np.ndarray, request: str) -> Lease | None:
        """Copy bytes [n] uint8 into a lease of the request; None if there is no room."""
        size = HEAD + -(-array.nbytes // ALIGN) * ALIGN
        offset = self._take(size)
        if offset is None:
            self.sweep()
            offset = self._take(size)
            if offset is None:
                return None
        self._count += 1
        number = self._count * _SPREAD % 2**64
        self._held[number] = Held(request, offset, size)
        self._heads[offset // 8 + _READ] = 0
        self._bytes[offset + HEAD : offset + HEAD + array.nbytes] = array
        self._heads[offset // 8 + _NUMBER] = number
        return Lease(self.name, number, offset + HEAD, array.nbytes)

    def sweep(self) -> None:
        """Take back what was read."""
        for number, held in list(self._held.items()):
            if self._heads[held.offset // 8 + _READ]:
                self._give_back(number)

    def free(self, request: str) -> None:
        """Take back all of a request's leases, read or not."""
        for number in [number for number, held in self._held.items() if held.request == request]:
            self._give_back(number)

    @property
    def leases(self) -> int:
        """Leases that were not read yet."""
        self.sweep()
        return len(self._held)

    @property
    def free_bytes(self) -> int:
        return sum(size for _, size in self._free)

    @property
    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self._held.clear()
        del self._bytes, self._heads
        self._map.close()
        os.close(self._file)

    def _take(self, size: int) -> int | None:
        for place, (offset, width) in enumerate(self._free):
            if width >= size:
                if width == size:
                    del self._free[place]
                else:
                    self._free[place] = (offset + size, width - size)
                return offset
        return None

    def _give_back(self, number: int) -> None:
        held = self._held.pop(number)
        self._heads[held.offset // 8 + _NUMBER] = 0
        self.freed += 1
        offset, size = held.offset, held.size
        place = bisect_left(self._free, (offset, 0))
        if place < len(self._free) and self._free[place][0] == offset + size:
            size += self._free.pop(place)[1]
        if place and sum(self._free[place - 1]) == offset:
            offset, before = self._free.pop(place - 1)
            size += before
        insort(self._free, (offset, size))


class PeerArena:
    """Another worker's arena, mapped. Raises Gone if it is not there, or not to be had."""

    def __init__(self, name: str) -> None:
        _, pid, number, inode = name.rsplit(":", 3)
        try:
            self._file = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as why:
            raise Gone(f"arena {name}: {why.strerror}") from why
        found = os.fstat(self._file)
        if found.st_ino != int(inode):
            os.close(self._file)
            raise Gone(f"arena {name} is another file now")
        self._map = mmap.mmap(self._file, found.st_size)
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        self._heads = np.frombuffer(self._map, dtype=np.uint64)

    def read(self, lease: Lease) -> bytearray:
        """A copy of the lease's bytes; its owner may take it back from now on. Raises Gone if it already did."""
        head = (lease.offset - HEAD) // 8
        copy = bytearray(lease.size)
        if self._heads[head + _NUMBER] == lease.number:
            copy[:] = memoryview(self._map)[lease.offset : lease.offset + lease.size]
        if self._heads[head + _NUMBER] != lease.number:
            raise Gone(f"lease {lease.number} of arena {lease.arena} was freed")
        self._heads[head + _READ] = 1
        return copy

    def drop(self, lease: Lease) -> None:
        """The lease will not be read."""
        head = (lease.offset - HEAD) // 8
        if self._heads[head + _NUMBER] == lease.number:
            self._heads[head + _READ] = 1

    def close(self) -> None:
        del self._bytes, self._heads
        self._map.close()
        os.close(self._file)
