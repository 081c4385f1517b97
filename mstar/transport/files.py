"""Memory that processes of one host share: anonymous files, which end with the last process that has them open.

A file has no name in any folder; peers of the same user open it through `/proc/<pid>/fd`.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mstar.transport.api import Gone


class SharedFile:
    """A file and its mapping."""

    __slots__ = ("_file", "_map", "bytes", "name", "words")

    def __init__(self, name: str, file: int, size: int) -> None:
        self.name = name
        self._file = file
        self._map = mmap.mmap(file, size)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._map, dtype=np.uint8)
        self.words: NDArray[np.uint64] = np.frombuffer(self._map, dtype=np.uint64)

    @classmethod
    def create(cls, owner: str, size: int) -> SharedFile:
        """A new file of zeros, `size` a multiple of 8; only what is written to takes memory."""
        file = os.memfd_create(f"mstar-{owner}", os.MFD_CLOEXEC)
        os.ftruncate(file, size)
        return cls(f"{owner}:{os.getpid()}:{file}:{os.fstat(file).st_ino}", file, size)

    @classmethod
    def open(cls, name: str) -> SharedFile:
        """Another process's. Raises Gone if it is not there, or not to be had."""
        _, pid, number, inode = name.rsplit(":", 3)
        try:
            file = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as why:
            raise Gone(f"arena {name}: {why.strerror}") from why
        found = os.fstat(file)
        if found.st_ino != int(inode):
            os.close(file)
            raise Gone(f"arena {name} is another file now")
        return cls(name, file, found.st_size)

    def read(self, start: int, size: int) -> memoryview:
        """Bytes [start, start + size), not copied: to be let go before `close`."""
        return memoryview(self._map)[start : start + size]

    def close(self) -> None:
        """Arrays made of `bytes` and `words` must be gone."""
        del self.bytes, self.words
        self._map.close()
        os.close(self._file)


def owner_of(arena: str) -> str:
    """The worker whose arena has this name."""
    return arena.partition(":")[0]


def alive(name: str) -> bool:
    """Whether the file can be opened."""
    try:
        _, pid, number, inode = name.rsplit(":", 3)
        return Path(f"/proc/{pid}/fd/{number}").stat().st_ino == int(inode)
    except (OSError, ValueError):
        return False
