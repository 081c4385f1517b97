"""One worker's shared memory: an anonymous file that its peers map, cut into leases (numpy only)."""

from __future__ import annotations

import numpy as np

from mstar.tensors import Lease
from mstar.transport.files import SharedFile
from mstar.transport.ledger import WITHIN, Ledger, PeerLedger

ALIGN = WITHIN.align


class Arena:
    """Leases of host memory. Not for several threads."""

    def __init__(self, owner: str, size: int) -> None:
        size = -(-size // ALIGN) * ALIGN
        self._file = SharedFile.create(owner, size)
        self.ledger = Ledger(self._file.name, size, self._file.words, WITHIN)

    @property
    def name(self) -> str:
        return self._file.name

    def put(self, array: np.ndarray, request: str) -> Lease | None:
        """Copy bytes [n] uint8 into a lease of the request; None if there is no room."""
        lease = self.ledger.take(array.nbytes, request)
        if lease is not None:
            self._file.bytes[lease.offset : lease.offset + lease.size] = array
            self.ledger.publish(lease)
        return lease

    def close(self) -> None:
        self.ledger.close()
        self._file.close()


class PeerArena:
    """Another worker's arena, mapped. Raises Gone if it is not there, or not to be had."""

    def __init__(self, name: str) -> None:
        self._file = SharedFile.open(name)
        self._ledger = PeerLedger(self._file.words, WITHIN)

    def read(self, lease: Lease) -> bytearray:
        """A copy of the lease's bytes; its owner may take it back from now on. Raises Gone if it already did."""
        self._ledger.check(lease)
        copy = bytearray(self._file.read(lease.offset, lease.size))
        self._ledger.check(lease)
        self._ledger.done(lease)
        return copy

    def drop(self, lease: Lease) -> None:
        """The lease will not be read."""
        self._ledger.done(lease)

    def close(self) -> None:
        self._ledger.close()
        self._file.close()
