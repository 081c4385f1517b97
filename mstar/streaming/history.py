"""The last items of a session's live input, as rows of one array, for nodes that look back (numpy only)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mstar.errors import Rejected


class History:
    """Keeps at least the last `capacity` items of a stream, by absolute index; the first one to come is item `start`.

    The rows lie in one array of twice the capacity that slides when it is full, so a slice never has to be joined:
    `slice` returns a read-only copy, which stays valid whatever is put afterwards.
    """

    __slots__ = ("_capacity", "_first", "_rows", "_stop")

    def __init__(self, capacity: int, start: int = 0) -> None:
        if capacity < 1:
            raise ValueError(f"a history of {capacity} items keeps nothing")
        self._capacity = capacity
        self._rows: NDArray[np.generic] | None = None  # [2 · capacity, ...]
        self._first = start  # index of the item in row 0
        self._stop = start

    def put(self, index: int, rows: NDArray[np.generic]) -> None:
        """Items [index, index + n) are the rows of an array [n, ...]. Known items are ignored.

        Raises Rejected for a gap before them, or another shape or dtype than the first ones had.
        """
        if index > self._stop:
            raise Rejected(f"items from {index} leave a gap after {self._stop}", param="index")
        rows = rows[self._stop - index :]
        if self._rows is None:
            self._rows = np.empty((2 * self._capacity, *rows.shape[1:]), rows.dtype)
        elif rows.shape[1:] != self._rows.shape[1:] or rows.dtype != self._rows.dtype:
            have, want = (rows.shape[1:], rows.dtype), (self._rows.shape[1:], self._rows.dtype)
            raise Rejected(f"items of {have[0]} {have[1]} on a stream of {want[0]} {want[1]}", param="value")
        self._stop += len(rows)
        rows = rows[-self._capacity :]
        self._make_room(len(rows))
        self._rows[self._stop - len(rows) - self._first : self._stop - self._first] = rows

    def _make_room(self, n: int) -> None:
        """Slide so that the row of the last item exists; the items before the last n move."""
        assert self._rows is not None
        if self._stop - self._first <= len(self._rows):
            return
        keep = max(self._stop - self._capacity, self._first)
        old = self._rows[keep - self._first : max(self._stop - n - self._first, keep - self._first)]
        self._rows[: len(old)] = old
        self._first = keep

    def ready(self, stop: int) -> bool:
        """Whether all items before `stop` have come."""
        return stop <= self._stop

    def slice(self, start: int, stop: int) -> NDArray[np.generic]:
        """The items [start, stop) as [n, ...]. Raises Rejected unless all of them are kept."""
        if not self.start <= start <= stop <= self._stop or self._rows is None:
            raise Rejected(
                f"items {start}..{stop} are not at hand; {self.start}..{self._stop} are",
                code="out_of_window",
                param="start",
            )
        rows = self._rows[start - self._first : stop - self._first].copy()
        rows.flags.writeable = False
        return rows

    @property
    def start(self) -> int:
        """Index of the oldest item kept."""
        return max(self._first, self._stop - self._capacity)

    @property
    def stop(self) -> int:
        """Index behind the newest item."""
        return self._stop
