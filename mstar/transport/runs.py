"""Free room in a run of bytes, first fit (pure)."""

from __future__ import annotations

from bisect import bisect_left, insort


class Runs:
    """The free parts of `size` bytes, neighbours joined. Not for several threads."""

    __slots__ = ("_free", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._free: list[tuple[int, int]] = [(0, size)]  # (offset, size), ascending, never adjacent

    @property
    def free_bytes(self) -> int:
        return sum(size for _, size in self._free)

    def take(self, size: int) -> int | None:
        """Offset of `size` bytes that are nobody's, from now on the caller's; None if there is no such run."""
        for place, (offset, width) in enumerate(self._free):
            if width >= size:
                if width == size:
                    del self._free[place]
                else:
                    self._free[place] = (offset + size, width - size)
                return offset
        return None

    def give_back(self, offset: int, size: int) -> None:
        """What `take` gave is free again."""
        place = bisect_left(self._free, (offset, 0))
        if place < len(self._free) and self._free[place][0] == offset + size:
            size += self._free.pop(place)[1]
        if place and sum(self._free[place - 1]) == offset:
            offset, before = self._free.pop(place - 1)
            size += before
        insort(self._free, (offset, size))
