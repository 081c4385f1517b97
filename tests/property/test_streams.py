"""Whatever order items, cuts and the end arrive in, a stream keeps its promises."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar.streaming.buffer import StreamBuffer
from mstar.streaming.chunk import Chunk
from mstar.streaming.history import History
from mstar.streaming.policies import (
    LEAST_GROWTH,
    ChunkPolicy,
    ContinueChunkPolicy,
    DeadlineChunkPolicy,
    FixedChunkPolicy,
    LatestChunkPolicy,
    LeftContextChunkPolicy,
    RampChunkPolicy,
    SlidingWindowChunkPolicy,
    rule,
)

sizes = st.integers(1, 6)
plain = st.one_of(
    sizes.map(FixedChunkPolicy),
    st.tuples(sizes, sizes).map(lambda pair: SlidingWindowChunkPolicy(max(pair), min(pair))),
    st.tuples(sizes, st.integers(0, 6)).map(lambda pair: LeftContextChunkPolicy(pair[0], min(pair))),
    st.tuples(sizes, st.one_of(st.just(1.0), st.floats(LEAST_GROWTH, 3)), st.integers(0, 9), st.integers(0, 9)).map(
        lambda four: RampChunkPolicy(four[0], four[1], four[0] + four[2], four[3])
    ),
)
waiting = st.tuples(plain, st.integers(0, 30)).map(lambda pair: DeadlineChunkPolicy(*pair))
policies: st.SearchStrategy[ChunkPolicy] = st.one_of(plain, waiting)


@dataclass(frozen=True)
class Script:
    """A stream of `count` items with cuts before some of them, told piece by piece."""

    count: int
    cuts: tuple[int, ...]
    pieces: tuple[tuple[int, int], ...]  # [start, stop) of the puts, overlaps and repetitions among them
    random: Random

    def segment_of(self, item: int) -> int:
        return sum(cut <= item for cut in self.cuts)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    count = draw(st.integers(0, 30))
    cuts = tuple(sorted(draw(st.sets(st.integers(1, count), max_size=5)))) if count else ()
    borders = sorted({0, count, *draw(st.sets(st.integers(0, count), max_size=8))})
    pieces = list(pairwise(borders))
    repeated = draw(st.lists(st.tuples(st.integers(0, count), st.integers(0, 5)), max_size=4))
    pieces += [(start, min(count, start + length)) for start, length in repeated]
    return Script(count, cuts, tuple(draw(st.permutations(pieces))), draw(st.randoms(use_true_random=False)))


def tell(script: Script, buffer: StreamBuffer, piece: tuple[int, int]) -> None:
    start, stop = piece
    buffer.put(start, np.arange(start, stop), cut=stop in script.cuts)


def items_of(chunk: Chunk) -> list[int]:
    value: Any = chunk.value
    return [] if value is None else value.tolist()


def drain(buffer: StreamBuffer, now: float = 0.0) -> list[Chunk]:
    chunks = []
    while buffer.ready(now):
        chunks.append(buffer.take(now))
    return chunks


def check_promises(script: Script, chunks: list[Chunk]) -> None:
    """The promises of a stream that has ended, in the words of its documentation."""
    news = [item for chunk in chunks for item in items_of(chunk)[chunk.n_context :]]
    assert news == list(range(script.count))
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].segment_final
    for chunk in chunks:
        assert items_of(chunk) == list(range(chunk.first, chunk.first + chunk.n_context + chunk.n_new))
        assert {script.segment_of(item) for item in items_of(chunk)} <= {chunk.segment}
    for segment in {script.segment_of(item) for item in range(script.count)}:
        own = [chunk for chunk in chunks if chunk.segment == segment]
        assert [chunk.segment_final for chunk in own] == [False] * (len(own) - 1) + [True]
        if segment < len(script.cuts):  # whoever waits for the cut runs with it
            assert own[-1].n_new or not own[-1].final
    assert [chunk.segment for chunk in chunks] == sorted(chunk.segment for chunk in chunks)


@settings(max_examples=300, deadline=None)
@given(policies, scripts())
def test_a_stream_keeps_its_promises_in_any_order(policy: ChunkPolicy, script: Script) -> None:
    buffer = StreamBuffer(policy, 200, "rows")
    told = [*script.pieces, *(("cut", cut) for cut in script.cuts), ("end", script.count)]
    script.random.shuffle(told)
    chunks: list[Chunk] = []
    now = 0.0
    for what, where in told:
        now += script.random.randint(0, 20)
        if what == "cut":
            buffer.cut(where)
        elif what == "end":
            if where in script.cuts:  # a cut may come late, but not after the end that it stands before
                buffer.cut(where)
            buffer.end(where)
        else:
            assert isinstance(what, int)
            for cut in script.cuts:  # nor after items from behind it
                if buffer.read <= cut < where:
                    buffer.cut(cut)
            buffer.put(what, np.arange(what, where), cut=where in script.cuts and script.random.random() < 0.5, now=now)
        while script.random.random() < 0.6 and buffer.ready(now):
            chunks.append(buffer.take(now))
    chunks += drain(buffer, now)
    check_promises(script, chunks)
    assert (buffer.depth, buffer.dropped, buffer.ended) == (0, 0, True)


@settings(max_examples=200, deadline=None)
@given(plain, scripts())
def test_what_is_taken_late_does_not_depend_on_how_it_came(policy: ChunkPolicy, script: Script) -> None:
    one = StreamBuffer(policy, 200, "rows")
    for cut in script.cuts:
        one.cut(cut)
    one.put(0, np.arange(script.count))
    one.end(script.count)
    other = StreamBuffer(policy, 200, "rows")
    other.end(script.count)
    for piece in script.pieces:
        tell(script, other, piece)
    for cut in reversed(script.cuts):
        other.cut(cut)
    expected, got = drain(one), drain(other)
    assert [(c.first, c.n_context, c.n_new, c.segment, c.segment_final, c.final) for c in got] == [
        (c.first, c.n_context, c.n_new, c.segment, c.segment_final, c.final) for c in expected
    ]
    assert [items_of(chunk) for chunk in got] == [items_of(chunk) for chunk in expected]


@settings(max_examples=200, deadline=None)
@given(policies, st.integers(0, 40), st.randoms(use_true_random=False), st.integers(0, 6))
def test_a_producer_that_heeds_the_bound_is_never_stuck(
    policy: ChunkPolicy, count: int, random: Random, more: int
) -> None:
    bound = rule(policy).largest + more
    buffer = StreamBuffer(policy, bound)
    put, chunks = 0, []
    while not buffer.ended:
        if put < count and buffer.free and random.random() < 0.7:
            buffer.put(put, put)
            put += 1
            assert buffer.free <= bound - buffer.depth
        elif put == count:
            buffer.end(count)
        if buffer.ready() and (random.random() < 0.5 or put == count or not buffer.free):
            chunks.append(buffer.take())
        else:
            assert put == count or buffer.free
    assert sum(chunk.n_new for chunk in chunks) == count
    assert chunks[-1].final


@settings(max_examples=150, deadline=None)
@given(scripts(), st.integers(1, 8))
def test_items_are_given_or_counted_as_dropped(script: Script, bound: int) -> None:
    for policy, full in ((LatestChunkPolicy(), "wait"), (FixedChunkPolicy(1), "drop_oldest")):
        buffer = StreamBuffer(policy, bound, full=full)  # type: ignore[arg-type]
        given_: list[int] = []
        for item in range(script.count):
            buffer.put(item, item, cut=item + 1 in script.cuts)
            assert buffer.depth <= max(bound, len(script.cuts) * script.count)
            if script.random.random() < 0.4 and buffer.ready():
                chunk = buffer.take()
                given_ += [chunk.first] * chunk.n_new
        buffer.end(script.count)
        chunks = drain(buffer)
        assert chunks[-1].final
        given_ += [chunk.first for chunk in chunks if chunk.n_new]
        assert given_ == sorted(set(given_))
        assert len(given_) + buffer.dropped == script.count
        if script.count:
            assert given_[-1] == script.count - 1


@settings(max_examples=100, deadline=None)
@given(plain, scripts(), st.integers(0, 5))
def test_a_continuing_stream_is_the_same_but_never_final(policy: ChunkPolicy, script: Script, after: int) -> None:
    buffers = [StreamBuffer(each, 200, "rows") for each in (policy, ContinueChunkPolicy(policy))]
    for buffer in buffers:
        for piece in script.pieces:
            tell(script, buffer, piece)
        buffer.end(script.count)
    ended = drain(buffers[0])
    continuing = [buffers[1].take() for _ in range(len(ended) + after)]
    assert not any(chunk.final for chunk in continuing)
    for chunk, same in zip(ended, continuing, strict=False):
        assert (chunk.first, chunk.n_context, chunk.n_new, chunk.segment_final) == (
            same.first,
            same.n_context,
            same.n_new,
            same.segment_final,
        )
    for chunk in continuing[len(ended) :]:
        assert (chunk.n_context, chunk.n_new, chunk.segment_final) == (0, 0, False)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 20), st.lists(st.integers(0, 30), max_size=12), st.randoms(use_true_random=False))
def test_a_history_is_the_end_of_all_that_came(capacity: int, steps: list[int], random: Random) -> None:
    history = History(capacity)
    stop = 0
    for step in steps:
        again = random.randint(0, min(stop, 3))
        history.put(stop - again, np.arange(stop - again, stop + step))
        stop += step
        assert (history.start, history.stop) == (max(0, stop - capacity), stop)
        start = random.randint(history.start, stop)
        assert history.slice(start, stop).tolist() == list(range(start, stop))
