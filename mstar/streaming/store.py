"""The items a stream buffer holds, by absolute index: single values, or rows of arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Protocol

from mstar.errors import Rejected
from mstar.streaming.arrays import concat, is_array, stack
from mstar.tensors import Value


class Store(Protocol):
    """A contiguous run of items that grows at its end and is let go at its start."""

    def pieces(self, value: Value, rows: bool) -> Sequence[tuple[Value, int]]:
        """A value as this store takes it: pieces, each with the number of its items. `rows`: its rows are the items.

        Raises Rejected for rows of what has none.
        """
        ...

    def append(self, value: Value, skip: int) -> None:
        """Add the items of `value` but its first `skip` ones."""
        ...

    def slice(self, first: int, stop: int) -> Value:
        """Value of a chunk of the items [first, stop); first is not before the oldest item kept."""
        ...

    def let_go(self, before: int) -> None:
        """Forget the items before this index."""
        ...


class Singles:
    """Items that are values of their own."""

    __slots__ = ("_first", "_items")

    def __init__(self, start: int) -> None:
        self._items: deque[Value] = deque()
        self._first = start

    def pieces(self, value: Value, rows: bool) -> Sequence[tuple[Value, int]]:
        return [(row, 1) for row in _rows(value)] if rows else ((value, 1),)

    def append(self, value: Value, skip: int) -> None:
        if not skip:
            self._items.append(value)

    def slice(self, first: int, stop: int) -> Value:
        if stop == first:
            return None
        offset = first - self._first
        if stop == first + 1:
            return self._items[offset]
        items = tuple(islice(self._items, offset, stop - self._first))
        return stack(items) if is_array(items[0]) else items

    def let_go(self, before: int) -> None:
        while self._first < before:
            self._items.popleft()
            self._first += 1


class Rows:
    """Items that are the rows of arrays: kept as they came, cut as views, joined only where a chunk spans several."""

    __slots__ = ("_arrays", "_stop")

    def __init__(self, start: int) -> None:
        self._arrays: deque[tuple[int, Any]] = deque()  # (index of the first row, array [n, ...])
        self._stop = start

    def pieces(self, value: Value, rows: bool) -> Sequence[tuple[Value, int]]:
        array = _rows(value) if rows else _one(value)
        return ((array, len(array)),)

    def append(self, value: Value, skip: int) -> None:
        array: Any = value
        rows = array[skip:] if skip else array
        if len(rows):
            self._arrays.append((self._stop, rows))
            self._stop += len(rows)

    def slice(self, first: int, stop: int) -> Value:
        if stop == first:
            return None
        pieces = []
        for start, array in self._arrays:
            if start >= stop:
                break
            if start + len(array) > first:
                pieces.append(array[max(first - start, 0) : stop - start])
        return concat(pieces)

    def let_go(self, before: int) -> None:
        while self._arrays and self._arrays[0][0] + len(self._arrays[0][1]) <= before:
            self._arrays.popleft()


def _rows(value: Value) -> Any:
    if not getattr(value, "shape", None):
        raise Rejected("only an array of at least one dimension has rows that are items", param="value")
    return value


def _one(value: Value) -> Any:
    if not is_array(value):
        raise Rejected("an item of a stream of rows must be an array", param="value")
    array: Any = value
    return array[None]
