"""Random appends, forks, truncations and releases of sequences against plain lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from mstar.engine.kv.pages import OutOfPages, PageAllocator, is_run
from mstar.engine.kv.sequences import KVPool, KVSequence, common_prefix

PAGES, PAGE_SIZE = 24, 4


class Slots:
    """A page store of one number per position."""

    pages = PAGES
    page_size = PAGE_SIZE

    def __init__(self, prefers_runs: bool) -> None:
        self.prefers_runs = prefers_runs
        self.values = np.zeros((PAGES, PAGE_SIZE), dtype=np.int64)

    def copy(self, source: Sequence[int], target: Sequence[int]) -> int:
        assert not set(source) & set(target)
        self.values[list(target)] = self.values[list(source)]
        return len(source) * PAGE_SIZE


class PoolMachine(RuleBasedStateMachine):
    sequences = Bundle("sequences")

    @initialize(prefers_runs=st.booleans())
    def start(self, prefers_runs: bool) -> None:
        self.store = Slots(prefers_runs)
        self.pool = KVPool(self.store)
        self.expected: dict[KVSequence, list[int]] = {}
        self.fresh = 0

    @rule(target=sequences)
    def new(self) -> KVSequence:
        sequence = KVSequence()
        self.expected[sequence] = []
        return sequence

    @rule(sequence=sequences, count=st.integers(1, 11))
    def append(self, sequence: KVSequence, count: int) -> None:
        free, pages = self.pool.pages.free, list(sequence.pages)
        try:
            self.pool.reserve(sequence, count)
        except OutOfPages:
            assert (self.pool.pages.free, sequence.pages) == (free, pages)
            return
        values = list(range(self.fresh, self.fresh + count))
        self.fresh += count
        for position, value in enumerate(values, start=sequence.length):
            self.store.values[sequence.pages[position // PAGE_SIZE], position % PAGE_SIZE] = value
        self.pool.commit(sequence, np.array(values))
        self.expected[sequence] += values

    @rule(sequence=sequences, count=st.integers(1, 11))
    def roll_back(self, sequence: KVSequence, count: int) -> None:
        try:
            self.pool.reserve(sequence, count)
        except OutOfPages:
            return
        for position in range(sequence.length, sequence.length + count):
            self.store.values[sequence.pages[position // PAGE_SIZE], position % PAGE_SIZE] = -1
        self.pool.trim(sequence)

    @rule(target=sequences, source=sequences, share=st.floats(0, 1))
    def fork(self, source: KVSequence, share: float) -> KVSequence:
        length = round(share * source.length)
        fork = self.pool.fork(source, length)
        assert fork.length == length or length - PAGE_SIZE < fork.length < length
        self.expected[fork] = self.expected[source][: fork.length]
        return fork

    @rule(sequence=sequences, share=st.floats(0, 1))
    def truncate(self, sequence: KVSequence, share: float) -> None:
        length = round(share * sequence.length)
        self.pool.truncate(sequence, length)
        del self.expected[sequence][length:]

    @rule(sequence=consumes(sequences))
    def release(self, sequence: KVSequence) -> None:
        self.pool.release(sequence)
        del self.expected[sequence]

    @invariant()
    def every_sequence_reads_what_was_written(self) -> None:
        for sequence, values in getattr(self, "expected", {}).items():
            read = self.store.values[sequence.pages].reshape(-1)[: sequence.length]
            assert read.tolist() == values == sequence.keys.tolist()
            assert len(sequence.pages) == self.pool.page_count(sequence.length)

    @invariant()
    def every_page_is_free_or_held_by_those_who_name_it(self) -> None:
        if not hasattr(self, "pool"):
            return
        holders = Counter(page for sequence in self.expected for page in sequence.pages)
        assert self.pool.pages.free + len(holders) == PAGES
        assert all(self.pool.pages.shared(page) == (count > 1) for page, count in holders.items())

    @rule()
    def with_room_a_sequence_is_one_run(self) -> None:
        if self.store.prefers_runs and not self.pool.counters.scattered:
            for sequence in self.expected:
                assert is_run(sequence.pages) or any(map(self.pool.pages.shared, sequence.pages))


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


_KEYS = st.lists(st.integers(0, 2), max_size=12)


@given(left=_KEYS, right=_KEYS)
def test_common_prefix(left: list[int], right: list[int]) -> None:
    expected = next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
    assert common_prefix(np.array(left, dtype=np.int64), np.array(right, dtype=np.int64)) == expected


@given(counts=st.lists(st.integers(1, 9), max_size=12), freed=st.sets(st.integers(0, 11)), wanted=st.integers(1, 40))
def test_a_run_is_found_whenever_there_is_one(counts: list[int], freed: set[int], wanted: int) -> None:
    allocator = PageAllocator(40)
    runs = [allocator.take_run(count) for count in counts]
    for i in freed & set(range(len(runs))):
        allocator.release(runs[i] or ())
        runs[i] = None
    held = {page for run in runs if run for page in run}
    exists = any(not held & set(range(start, start + wanted)) for start in range(40 - wanted + 1))
    run = allocator.take_run(wanted)
    assert (run is not None) == exists
    assert not held & set(run or ())
    assert allocator.free == 40 - len(held) - len(run or ())
