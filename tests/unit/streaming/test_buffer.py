"""Order, ends, segments, bounds and deadlines of a stream buffer."""

from __future__ import annotations

import pytest

from mstar.errors import GraphError, Rejected
from mstar.streaming.buffer import StreamBuffer
from mstar.streaming.policies import (
    ChunkPolicy,
    ContinueChunkPolicy,
    DeadlineChunkPolicy,
    FixedChunkPolicy,
    LatestChunkPolicy,
    LeftContextChunkPolicy,
    RampChunkPolicy,
    SlidingWindowChunkPolicy,
)
from tests.unit.streaming.consumer import Got, drain, got


def filled(policy: ChunkPolicy, n: int, bound: int = 1000) -> StreamBuffer:
    buffer = StreamBuffer(policy, bound)
    for index in range(n):
        buffer.put(index, index)
    return buffer


def news(chunks: list[Got]) -> list[tuple[object, ...]]:
    return [chunk.new for chunk in chunks]


# --------------------------------------------------------------------------------------------------- order and the end


def test_items_come_in_order_whatever_order_they_arrive_in() -> None:
    buffer = StreamBuffer(FixedChunkPolicy(1), 10)
    buffer.put(2, "c")
    assert not buffer.ready()
    buffer.put(0, "a")
    assert news(drain(buffer)) == [("a",)]
    buffer.put(1, "b")
    assert news(drain(buffer)) == [("b",), ("c",)]


def test_an_item_that_arrives_twice_counts_once() -> None:
    buffer = StreamBuffer(FixedChunkPolicy(2), 10)
    for index, value in ((0, "a"), (0, "again"), (2, "c"), (2, "again"), (1, "b"), (1, "again"), (3, "d"), (2, "late")):
        buffer.put(index, value)
    assert news(drain(buffer)) == [("a", "b"), ("c", "d")]
    assert buffer.items_seen == 4


def test_the_end_can_not_overtake_items() -> None:
    buffer = filled(FixedChunkPolicy(2), 4)
    buffer.end(5)
    assert [chunk.final for chunk in drain(buffer)] == [False, False]
    assert not buffer.ready()
    buffer.put(4, 4)
    assert drain(buffer) == [Got((4,), 4, 0, 0, True, True)]
    assert buffer.ended


@pytest.mark.parametrize(
    ("index", "count"), [(-1, None), (3, 3), (4, 3)], ids=["below zero", "at the end", "beyond the end"]
)
def test_an_item_outside_the_stream_is_rejected_and_changes_nothing(index: int, count: int | None) -> None:
    buffer = filled(FixedChunkPolicy(1), 2)
    if count is not None:
        buffer.end(count)
    with pytest.raises(Rejected, match="items") as caught:
        buffer.put(index, "x")
    assert caught.value.param == "index"
    assert buffer.depth == 2


def test_an_end_before_what_has_come_is_rejected() -> None:
    buffer = filled(FixedChunkPolicy(1), 2)
    buffer.put(7, "ahead")
    with pytest.raises(Rejected, match="ended at 7"):
        buffer.end(7)
    buffer.end(8)
    buffer.end(8)
    with pytest.raises(Rejected, match="ended at 9"):
        buffer.end(9)


def test_a_stream_may_begin_at_a_later_item() -> None:
    buffer = StreamBuffer(LeftContextChunkPolicy(2, 2), 10, start=100)
    for index in range(97, 104):
        buffer.put(index, index)
    buffer.end(104)
    assert [(chunk.first, chunk.items, chunk.final) for chunk in drain(buffer)] == [
        (100, (100, 101), False),
        (100, (100, 101, 102, 103), False),
        (102, (102, 103), True),
    ]


def test_clear_makes_it_as_new() -> None:
    buffer = filled(RampChunkPolicy(1, 2, 4, 1), 6)
    buffer.put(9, 9, cut=True)
    before = drain(buffer)
    buffer.end(10)
    buffer.clear()
    assert (buffer.depth, buffer.free, buffer.dropped, buffer.items_seen, buffer.ready()) == (0, 1000, 0, 0, False)
    for index in range(6):
        buffer.put(index, index)
    assert drain(buffer) == before


# ------------------------------------------------------------------------------------------------------------ segments


def test_no_chunk_and_no_context_crosses_a_cut() -> None:
    buffer = StreamBuffer(LeftContextChunkPolicy(3, 2), 100)
    for index in range(10):
        buffer.put(index, index, cut=index == 4)
    buffer.end(10)
    assert drain(buffer) == [
        Got((0, 1, 2), 0, 0, 0, False, False),
        Got((1, 2, 3, 4), 1, 2, 0, True, False),  # the short remainder is flushed at the cut
        Got((5, 6, 7), 5, 0, 1, False, False),
        Got((6, 7, 8, 9), 6, 2, 1, True, True),
    ]


def test_a_cut_known_in_time_is_said_with_the_last_item() -> None:
    buffer = StreamBuffer(LeftContextChunkPolicy(2, 1), 100)
    for index in range(4):
        buffer.put(index, index, cut=index == 3)
    assert [(chunk.new, chunk.segment_final) for chunk in drain(buffer)] == [((0, 1), False), ((2, 3), True)]


def test_a_cut_that_comes_late_is_said_by_an_empty_chunk_with_context() -> None:
    buffer = filled(LeftContextChunkPolicy(2, 1), 2)
    assert drain(buffer) == [Got((0, 1), 0, 0, 0, False, False)]
    buffer.cut(2)
    assert drain(buffer) == [Got((1,), 1, 1, 0, True, False)]
    buffer.put(2, 2)
    buffer.cut(3)
    assert drain(buffer) == [Got((2,), 2, 0, 1, True, False)]


def test_a_cut_without_items_is_nothing() -> None:
    buffer = StreamBuffer(FixedChunkPolicy(2), 100)
    buffer.cut(0)
    assert not buffer.ready()
    buffer.put(0, 0, cut=True)
    buffer.cut(1)
    assert drain(buffer) == [Got((0,), 0, 0, 0, True, False)]
    buffer.cut(1)
    assert not buffer.ready()
    buffer.put(1, 1)
    buffer.cut(1)  # repeated behind later items
    assert not buffer.ready()


def test_a_stream_that_ends_at_a_cut_has_one_final_chunk() -> None:
    for order in ("cut and end known", "cut known", "nothing known"):
        buffer = StreamBuffer(FixedChunkPolicy(2), 100)
        buffer.put(0, 0)
        chunks = drain(buffer)
        if order == "nothing known":
            buffer.put(1, 1)
            chunks += drain(buffer)
            buffer.cut(2)
        else:
            buffer.put(1, 1, cut=True)
        if order != "cut and end known":
            chunks += drain(buffer)
        buffer.end(2)
        chunks += drain(buffer)
        flags = {
            "cut and end known": [(2, 0, True, True)],
            "cut known": [(2, 0, True, False), (0, 1, True, True)],
            "nothing known": [(2, 0, False, False), (0, 0, True, False), (0, 1, True, True)],
        }
        assert [(len(c.new), c.segment, c.segment_final, c.final) for c in chunks] == flags[order]


def test_a_cut_that_comes_with_the_end_is_said_before_it() -> None:
    """Else a node that finishes something at a cut would not run: a final chunk with nothing new ends the stream."""
    buffer = filled(FixedChunkPolicy(1), 2)
    drain(buffer)
    buffer.cut(2)
    buffer.end(2)
    assert [(c.new, c.segment_final, c.final) for c in drain(buffer)] == [((), True, False), ((), True, True)]


def test_cuts_may_come_before_their_items_and_out_of_order() -> None:
    buffer = StreamBuffer(FixedChunkPolicy(10), 100)
    buffer.cut(4)
    buffer.cut(2)
    buffer.put(3, 3, cut=True)
    for index in (1, 0, 2):
        buffer.put(index, index)
    assert [(chunk.new, chunk.segment, chunk.segment_final) for chunk in drain(buffer)] == [
        ((0, 1), 0, True),
        ((2, 3), 1, True),
    ]


def test_a_cut_behind_which_items_were_taken_is_nothing() -> None:
    buffer = filled(FixedChunkPolicy(2), 2)
    assert drain(buffer) == [Got((0, 1), 0, 0, 0, False, False)]
    buffer.cut(1)
    assert not buffer.ready()
    buffer.put(2, 2)
    buffer.put(3, 3)
    assert drain(buffer) == [Got((2, 3), 2, 0, 0, False, False)]


def test_a_full_chunk_at_a_cut_that_ends_the_stream_is_final() -> None:
    buffer = filled(LeftContextChunkPolicy(2, 1), 4)
    buffer.cut(4)
    buffer.end(4)
    assert [(chunk.new, chunk.segment_final, chunk.final) for chunk in drain(buffer)] == [
        ((0, 1), False, False),
        ((2, 3), True, True),
    ]


def test_a_cut_after_the_end_was_said_is_nothing() -> None:
    buffer = filled(ContinueChunkPolicy(FixedChunkPolicy(2)), 2)
    buffer.end(2)
    assert [buffer.take().segment_final for _ in range(2)] == [True, False]
    buffer.cut(2)
    assert [buffer.take().segment_final for _ in range(2)] == [False, False]


def test_a_continuing_stream_says_once_that_it_is_over() -> None:
    buffer = StreamBuffer(ContinueChunkPolicy(FixedChunkPolicy(2)), 100)
    for index in range(3):
        buffer.put(index, index)
    buffer.end(3)
    chunks = [got(buffer.take()) for _ in range(4)]
    assert [(chunk.new, chunk.segment_final, chunk.final) for chunk in chunks] == [
        ((0, 1), False, False),
        ((2,), True, False),
        ((), False, False),
        ((), False, False),
    ]


# ------------------------------------------------------------------------------------------------------------ policies


def test_a_ramp_grows_over_the_whole_stream() -> None:
    buffer = StreamBuffer(RampChunkPolicy(2, 2, 10, 3), 100)
    for index in range(40):
        buffer.put(index, index, cut=index in {8, 20})
    chunks = drain(buffer)
    assert [len(chunk.new) for chunk in chunks] == [2, 4, 3, 10, 2, 10]  # 3 and 2: short remainders at the cuts
    assert [chunk.n_context for chunk in chunks] == [0, 2, 3, 0, 3, 0]
    assert buffer.depth == 9


def test_a_sliding_window_starts_anew_behind_a_cut() -> None:
    buffer = StreamBuffer(SlidingWindowChunkPolicy(4, 2), 100)
    for index in range(13):
        buffer.put(index, index, cut=index == 6)
    assert [chunk.items for chunk in drain(buffer)] == [
        (0, 1, 2, 3),
        (2, 3, 4, 5),
        (4, 5, 6),
        (7, 8, 9, 10),
        (9, 10, 11, 12),
    ]


def test_a_deadline_gives_what_is_there_when_the_oldest_item_has_waited() -> None:
    buffer = StreamBuffer(DeadlineChunkPolicy(FixedChunkPolicy(3), 40), 100)
    assert buffer.next_deadline() is None
    buffer.put(0, 0, now=1000)
    buffer.put(1, 1, now=1030)
    assert buffer.next_deadline() == 1040
    assert not buffer.ready(1039.9)
    assert buffer.ready(1040)
    assert got(buffer.take(1040)).new == (0, 1)
    assert buffer.next_deadline() is None
    buffer.put(2, 2, now=1050)
    buffer.put(3, 3, now=1051)
    buffer.put(4, 4, now=1052)
    assert buffer.next_deadline() is None  # it is ready, whatever the time
    assert got(buffer.take(1052)).new == (2, 3, 4)


def test_a_deadline_counts_from_the_oldest_item_left_behind() -> None:
    buffer = StreamBuffer(DeadlineChunkPolicy(LeftContextChunkPolicy(2, 1), 10), 100)
    for index in range(3):
        buffer.put(index, index, now=index)
    assert got(buffer.take(2)).new == (0, 1)
    assert buffer.next_deadline() == 12
    assert got(buffer.take(12)) == Got((1, 2), 1, 1, 0, False, False)
    buffer.end(3)
    assert buffer.next_deadline() is None
    assert got(buffer.take(12)) == Got((2,), 2, 1, 0, True, True)


def test_items_held_behind_a_gap_do_not_make_a_deadline() -> None:
    buffer = StreamBuffer(DeadlineChunkPolicy(FixedChunkPolicy(4), 10), 100)
    buffer.put(1, 1, now=0)
    assert buffer.next_deadline() is None
    assert not buffer.ready(1e9)
    buffer.put(0, 0, now=50)
    assert buffer.next_deadline() == 60


def test_latest_gives_the_newest_and_counts_what_it_dropped() -> None:
    buffer = filled(LatestChunkPolicy(), 4, bound=1)
    assert buffer.free == 0
    assert drain(buffer) == [Got((3,), 3, 0, 0, False, False)]
    assert (buffer.dropped, buffer.free) == (3, 1)
    buffer.put(4, 4)
    buffer.put(5, 5)
    buffer.end(6)
    assert drain(buffer) == [Got((5,), 5, 0, 0, True, True)]
    assert buffer.dropped == 4


def test_latest_gives_the_newest_of_every_segment() -> None:
    buffer = StreamBuffer(LatestChunkPolicy(), 10)
    for index in range(5):
        buffer.put(index, index, cut=index == 2)
    assert [(chunk.new, chunk.segment, chunk.segment_final) for chunk in drain(buffer)] == [
        ((2,), 0, True),
        ((4,), 1, False),
    ]
    assert buffer.dropped == 3


# -------------------------------------------------------------------------------------------------------------- bounds


def test_free_is_what_the_bound_leaves_beside_items_context_and_items_ahead() -> None:
    buffer = StreamBuffer(LeftContextChunkPolicy(3, 2), 8)
    assert buffer.free == 8
    for index in range(4):
        buffer.put(index, index)
    assert (buffer.free, buffer.depth) == (4, 4)
    buffer.take()
    assert (buffer.free, buffer.depth) == (5, 1)  # two of context, one waits
    buffer.put(6, 6)
    assert (buffer.free, buffer.depth) == (4, 1)
    for index in range(4, 12):
        buffer.put(index, index)
    assert buffer.free == 0


@pytest.mark.parametrize(
    ("policy", "least"),
    [
        (FixedChunkPolicy(3), 3),
        (SlidingWindowChunkPolicy(4, 1), 4),
        (LeftContextChunkPolicy(3, 2), 5),
        (RampChunkPolicy(1, 2, 8, 2), 10),
        (LatestChunkPolicy(), 1),
    ],
)
def test_a_bound_below_a_chunk_would_never_fire(policy: ChunkPolicy, least: int) -> None:
    with pytest.raises(GraphError, match=f"less than a chunk of {least}"):
        StreamBuffer(policy, least - 1, stream="s")
    buffer = StreamBuffer(policy, least)
    index = 0
    for _ in range(5):
        while buffer.free and not buffer.ready():
            buffer.put(index, index)
            index += 1
        buffer.take()


def test_drop_oldest_holds_the_bound_and_starts_context_anew() -> None:
    buffer = StreamBuffer(LeftContextChunkPolicy(2, 2), 4, full="drop_oldest")
    for index in range(2):
        buffer.put(index, index)
    assert drain(buffer) == [Got((0, 1), 0, 0, 0, False, False)]
    for index in range(2, 9):
        buffer.put(index, index)
    assert (buffer.depth, buffer.dropped, buffer.free) == (4, 3, 0)
    assert drain(buffer) == [Got((5, 6), 5, 0, 0, False, False), Got((5, 6, 7, 8), 5, 2, 0, False, False)]


def test_drop_oldest_counts_context_as_held() -> None:
    buffer = StreamBuffer(LeftContextChunkPolicy(2, 2), 4, full="drop_oldest")
    for index in range(5):
        buffer.put(index, index)
        drained = drain(buffer) if index == 1 else []
    assert drained == []
    assert (buffer.depth, buffer.dropped, buffer.free) == (2, 1, 2)
    assert drain(buffer) == [Got((3, 4), 3, 0, 0, False, False)]


def test_drop_oldest_passes_over_whole_segments() -> None:
    buffer = StreamBuffer(FixedChunkPolicy(2), 2, full="drop_oldest")
    for index in range(6):
        buffer.put(index, index, cut=index in {1, 5})
    assert (buffer.dropped, buffer.depth) == (4, 2)
    assert drain(buffer) == [Got((4, 5), 4, 0, 1, True, False)]
