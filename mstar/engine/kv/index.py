"""Finds who has computed a prefix already, by a chain of hashes over blocks of keys."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from mstar.engine.kv.sequences import KVSequence, common_prefix


class PrefixIndex:
    """Sequences by the hashes of their canonical blocks (see `KVSequence.canonical`).

    The hash of a block is that of the block before it and of its own keys, so that equal hashes stand for equal
    prefixes; a find is checked against the keys all the same. Cost: one hash a block, when it is filled and when it is
    looked for.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._of: dict[bytes, dict[KVSequence, None]] = {}
        self._chains: dict[KVSequence, list[bytes]] = {}

    def __len__(self) -> int:
        """Different blocks that can be found."""
        return len(self._of)

    def update(self, sequence: KVSequence) -> None:
        """After any change of the sequence's length: its canonical blocks can be found, and no others of it."""
        chain = self._chains.setdefault(sequence, [])
        blocks = sequence.canonical // self._size
        for digest in chain[blocks:]:
            holders = self._of[digest]
            del holders[sequence]
            if not holders:
                del self._of[digest]
        del chain[blocks:]
        while len(chain) < blocks:
            chain.append(self._hash(chain[-1] if chain else b"", sequence.keys, len(chain)))
            self._of.setdefault(chain[-1], {})[sequence] = None
        if not chain:
            del self._chains[sequence]

    def find(self, keys: np.ndarray) -> tuple[KVSequence, int] | None:
        """The sequence with the longest prefix of `keys` in whole blocks, and the prefix's length."""
        found: KVSequence | None = None
        digest = b""
        for block in range(len(keys) // self._size):
            digest = self._hash(digest, keys, block)
            holders = self._of.get(digest)
            if holders is None:
                break
            found = next(reversed(holders))  # whoever came last keeps it longest
        if found is None:
            return None
        shared = min(common_prefix(found.keys, keys), found.canonical)
        return found, shared // self._size * self._size

    def elsewhere(self, sequence: KVSequence) -> int:
        """Leading canonical positions of the sequence that others hold too."""
        alone = [i for i, digest in enumerate(self._chains.get(sequence, ())) if len(self._of[digest]) == 1]
        return (alone[0] if alone else len(self._chains.get(sequence, ()))) * self._size

    def _hash(self, before: bytes, keys: np.ndarray, block: int) -> bytes:
        own = keys[block * self._size : (block + 1) * self._size]
        return blake2b(before + own.tobytes(), digest_size=16).digest()
