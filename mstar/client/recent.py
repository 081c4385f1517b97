"""The last items of a live stream, kept at the client: a worker that takes a lost one's place is fed with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from mstar.messages import Feed


class Recent:
    """Keeps what was fed until `capacity` newer items have come; while it is `pinned`, everything."""

    def __init__(self, capacity: int) -> None:
        self.pinned = False
        self._capacity = capacity
        self._pieces: deque[tuple[int, Feed]] = deque()  # (stop, message), in order
        self._stop = 0

    def add(self, message: Feed) -> None:
        """The next items of the stream."""
        self._stop = max(self._stop, message.index + _items(message))
        self._pieces.append((self._stop, message))
        while not self.pinned and len(self._pieces) > 1 and self._pieces[0][0] <= self._stop - self._capacity:
            self._pieces.popleft()

    @property
    def first(self) -> int:
        """Index of the oldest item kept."""
        return self._pieces[0][1].index if self._pieces else self._stop

    def __iter__(self) -> Iterator[Feed]:
        return (message for _, message in self._pieces)


def _items(message: Feed) -> int:
    return len(message.value) if message.rows and hasattr(message.value, "__len__") else 1
