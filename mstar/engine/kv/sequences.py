"""A sequence of cached positions, and the operations on sequences that share one pool of pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mstar.engine.attention.backend import PageStore
from mstar.engine.kv.pages import OutOfPages, PageAllocator, is_run


@dataclass(slots=True, eq=False)
class KVSequence:
    """`length` positions, what stands at each (its key), and the pages that hold their K/V.

    Position p lies in slot `p % page_size` of page `pages[p // page_size]`. Pages beyond `length` are reserved for the
    step that is running. `canonical` leading positions, whole grains, hold what any prompt with these keys computes,
    bit for bit, on a kernel that promises it: they were computed by prompts, in pieces that began with a grain.
    """

    pages: list[int] = field(default_factory=list)
    length: int = 0
    canonical: int = 0
    _keys: np.ndarray = field(default_factory=lambda: np.empty(64, dtype=np.int64))
    _starts: np.ndarray = field(default_factory=lambda: np.empty(64, dtype=np.int32))

    @property
    def keys(self) -> np.ndarray:
        """[length] int64."""
        return self._keys[: self.length]

    @property
    def starts(self) -> np.ndarray:
        """[length] int32: the first of the positions that were computed together with this one."""
        return self._starts[: self.length]

    def append(self, keys: np.ndarray, starts: np.ndarray | None = None) -> None:
        """`starts`: where the positions are a copy, or computed again; else they are of one step."""
        stop = self.length + len(keys)
        if stop > len(self._keys):
            self._keys, self._starts = (_grown(old, stop, self.length) for old in (self._keys, self._starts))
        self._keys[self.length : stop] = keys
        self._starts[self.length : stop] = self.length if starts is None else starts
        self.length = stop


def _grown(old: np.ndarray, needed: int, used: int) -> np.ndarray:
    grown = np.empty(max(needed, 2 * len(old)), dtype=old.dtype)
    grown[:used] = old[:used]
    return grown


def common_prefix(left: np.ndarray, right: np.ndarray) -> int:
    """Number of leading keys that are the same."""
    length = min(len(left), len(right))
    differing = np.flatnonzero(left[:length] != right[:length])
    return int(differing[0]) if len(differing) else length


@dataclass(slots=True)
class PoolCounters:
    relocations: int = 0  # sequences copied to another run
    relocated_bytes: int = 0
    copied_pages: int = 0  # shared pages copied before a write
    scattered: int = 0  # reservations for which no run was wide enough


class KVPool:
    """Sequences over one page store.

    Where the store reads runs faster (`store.prefers_runs`), a sequence is kept in one run of adjacent pages: it grows
    in place, else it moves to another run, else its pages are scattered until a run is free. A page held by two
    sequences is never written: it is copied first.
    """

    def __init__(self, store: PageStore, grain: int = 1, make_room: Callable[[], bool] = lambda: False) -> None:
        """`grain`: see `KVSettings`.

        `make_room`: asked while no run is wide enough; frees some pages that nobody needs, or says False.
        """
        self.store = store
        self.grain = grain
        self.make_room = make_room
        self.page_size = store.page_size
        self.pages = PageAllocator(store.pages)
        self.counters = PoolCounters()

    def page_count(self, positions: int) -> int:
        return -(-positions // self.page_size)

    def fork(self, source: KVSequence, length: int) -> KVSequence:
        """A new sequence with the first `length` positions of `source`, possibly fewer when pages are short."""
        count = self.page_count(length)
        run = self.pages.take_run(count) if self.store.prefers_runs and count else None
        if run is not None:
            self._relocate(source.pages[:count], run)
            pages = list(run)
        else:
            whole = length // self.page_size
            pages = source.pages[:whole]
            self.pages.share(pages)
            if whole < count:
                try:
                    pages = pages + self._copy([source.pages[whole]])
                except OutOfPages:
                    length = whole * self.page_size
        fork = KVSequence(pages)
        fork.append(source.keys[:length], source.starts[:length])
        fork.canonical = min(source.canonical, self._whole(length))
        return fork

    def truncate(self, sequence: KVSequence, length: int) -> None:
        """Forget the positions from `length` on, and every page that holds none of the others."""
        if length > sequence.length:
            raise ValueError(f"can not truncate {sequence.length} positions to {length}")
        sequence.length = length
        sequence.canonical = min(sequence.canonical, self._whole(length))
        keep = self.page_count(length)
        self.pages.release(sequence.pages[keep:])
        del sequence.pages[keep:]

    def release(self, sequence: KVSequence) -> None:
        self.truncate(sequence, 0)

    def trim(self, sequence: KVSequence) -> None:
        """Give back the pages reserved beyond the sequence's length."""
        self.truncate(sequence, sequence.length)

    def reserve(self, sequence: KVSequence, count: int) -> None:
        """Make the next `count` positions writable. Raises OutOfPages, having changed nothing that can be seen."""
        needed = self.page_count(sequence.length + count)
        missing = needed - len(sequence.pages)
        written = sequence.length // self.page_size
        blocked = [i for i in range(written, len(sequence.pages)) if self.pages.shared(sequence.pages[i])]
        if missing <= 0 and not blocked:
            return
        if self.store.prefers_runs and self._reserve_run(sequence, needed, bool(blocked)):
            return
        fresh = self.pages.take(max(missing, 0) + len(blocked))
        if blocked:
            copies = fresh[: len(blocked)]
            self._move([sequence.pages[i] for i in blocked], copies)
            self.pages.release([sequence.pages[i] for i in blocked])
            for i, page in zip(blocked, copies, strict=True):
                sequence.pages[i] = page
        sequence.pages.extend(fresh[len(blocked) :])
        self.counters.scattered += self.store.prefers_runs

    def commit(
        self, sequence: KVSequence, keys: np.ndarray, *, prompt: bool = False, starts: np.ndarray | None = None
    ) -> None:
        """The reserved positions were written: they hold `keys` now. `prompt`: as a piece of a prompt computes them."""
        if self.page_count(sequence.length + len(keys)) > len(sequence.pages):
            raise ValueError(f"{len(keys)} positions committed that were not reserved")
        start = sequence.length
        sequence.append(keys, starts)
        if prompt and start == sequence.canonical:
            sequence.canonical = self._whole(sequence.length)

    def _whole(self, length: int) -> int:
        """Positions in whole grains."""
        return length // self.grain * self.grain

    def _reserve_run(self, sequence: KVSequence, needed: int, blocked: bool) -> bool:
        pages = sequence.pages
        if pages and not blocked and is_run(pages):
            behind = self.pages.extend(pages[-1], needed - len(pages))
            if behind is not None:
                pages.extend(behind)
                return True
        run = self.pages.take_run(needed)
        while run is None and self.make_room():
            run = self.pages.take_run(needed)
        if run is None:
            return False
        held = self.page_count(sequence.length)
        if held:
            self._relocate(pages[:held], run)
        self.pages.release(pages)
        sequence.pages = list(run)
        return True

    def _relocate(self, source: list[int], run: range) -> None:
        self.counters.relocations += 1
        self.counters.relocated_bytes += self.store.copy(source, list(run[: len(source)]))

    def _copy(self, source: list[int]) -> list[int]:
        target = self.pages.take(len(source))
        self._move(source, target)
        return target

    def _move(self, source: list[int], target: list[int]) -> None:
        self.counters.copied_pages += len(source)
        self.store.copy(source, target)
