"""Who holds which part of an arena, in memory that the owner and its peers share.

Every lease has a head of two numbers: whose lease it is, and whether its receiver has read it. The owner takes read
ones back when it needs room; a receiver that finds another number there, before or after it has copied, knows that the
lease was freed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mstar.tensors import Lease
from mstar.transport.api import Gone
from mstar.transport.runs import Runs

_NUMBER, _READ = 0, 1
_SPREAD = 0x9E3779B97F4A7C15  # odd: products with it are all different, and like nothing that arrays are full of


@dataclass(frozen=True, slots=True)
class Layout:
    """Where heads lie in their memory: of a lease whose room begins at `offset`, at word `offset // align * stride`.

    Its bytes begin `head` bytes behind the beginning of its room.
    """

    align: int
    stride: int
    head: int

    def word(self, lease: Lease) -> int:
        """Index of the lease's head among the words of 8 bytes."""
        return (lease.offset - self.head) // self.align * self.stride


WITHIN = Layout(align=64, stride=8, head=64)
"""Heads lie before the bytes, in the same memory."""
APART = Layout(align=4096, stride=2, head=0)
"""Heads lie in memory of their own, beside an arena that the host can not read."""


def words_beside(size: int) -> int:
    """Words of 8 bytes that the heads of an arena of `size` bytes take, laid out `APART`."""
    return -(-size // APART.align) * APART.stride


@dataclass(frozen=True, slots=True)
class _Held:
    """A lease that its receiver has not read yet, as far as is known."""

    lease: Lease
    request: str
    offset: int  # of its room
    size: int  # of its room


class Ledger:
    """The owner's side. Not for several threads."""

    def __init__(self, name: str, size: int, heads: NDArray[np.uint64], layout: Layout) -> None:
        self._name = name
        self._heads = heads
        self._layout = layout
        self._runs = Runs(size // layout.align * layout.align)
        self._held: dict[int, _Held] = {}
        self._count = 0
        self.freed = 0

    @property
    def size(self) -> int:
        """Bytes of the arena."""
        return self._runs.size

    @property
    def free_bytes(self) -> int:
        return self._runs.free_bytes

    @property
    def leases(self) -> int:
        """Leases that were not read yet."""
        self.sweep()
        return len(self._held)

    def take(self, size: int, request: str) -> Lease | None:
        """A lease of `size` bytes for the request, whose bytes are yet to come; None if there is no room."""
        layout = self._layout
        room = layout.head + -(-size // layout.align) * layout.align
        offset = self._runs.take(room)
        if offset is None:
            self.sweep()
            offset = self._runs.take(room)
            if offset is None:
                return None
        self._count += 1
        number = self._count * _SPREAD % 2**64
        lease = Lease(self._name, number, offset + layout.head, size)
        self._held[number] = _Held(lease, request, offset, room)
        self._heads[layout.word(lease) + _READ] = 0
        return lease

    def publish(self, lease: Lease) -> None:
        """The lease's bytes are there."""
        self._heads[self._layout.word(lease) + _NUMBER] = lease.number

    def sweep(self) -> None:
        """Take back what was read."""
        for held in list(self._held.values()):
            if self._heads[self._layout.word(held.lease) + _READ]:
                self._give_back(held)

    def free(self, request: str) -> None:
        """Take back all of a request's leases, read or not."""
        for held in [held for held in self._held.values() if held.request == request]:
            self._give_back(held)

    def close(self) -> None:
        self._held.clear()
        del self._heads

    def _give_back(self, held: _Held) -> None:
        del self._held[held.lease.number]
        self._heads[self._layout.word(held.lease) + _NUMBER] = 0
        self.freed += 1
        self._runs.give_back(held.offset, held.size)


class PeerLedger:
    """The receiver's side."""

    def __init__(self, heads: NDArray[np.uint64], layout: Layout) -> None:
        self._heads = heads
        self._layout = layout

    def check(self, lease: Lease) -> None:
        """Raises Gone if the owner has taken the lease back. To be asked before its bytes are copied, and after."""
        if self._heads[self._layout.word(lease) + _NUMBER] != lease.number:
            raise Gone(f"lease {lease.number} of arena {lease.arena} was freed")

    def done(self, lease: Lease) -> None:
        """The lease was read, or will not be: its owner may take it back."""
        at = self._layout.word(lease)
        if self._heads[at + _NUMBER] == lease.number:
            self._heads[at + _READ] = 1

    def close(self) -> None:
        del self._heads
