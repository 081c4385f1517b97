"""What a chunk's value is: single items, stacks, rows; numpy and torch alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mstar.errors import Rejected
from mstar.streaming.buffer import StreamBuffer
from mstar.streaming.policies import FixedChunkPolicy, LeftContextChunkPolicy

MAKERS = [np.asarray, torch.as_tensor]


def values(buffer: StreamBuffer) -> list[Any]:
    got: list[Any] = []
    while buffer.ready():
        got.append(buffer.take().value)
    return got


def test_one_value_stays_as_it_is_and_several_become_a_tuple() -> None:
    buffer = StreamBuffer(FixedChunkPolicy(2), 10)
    for index, word in enumerate(("a", "b", "c")):
        buffer.put(index, word)
    buffer.end(3)
    assert values(buffer) == [("a", "b"), "c"]


def test_no_items_are_none() -> None:
    for items in ("one", "rows"):
        buffer = StreamBuffer(FixedChunkPolicy(2), 10, items)
        buffer.end(0)
        assert values(buffer) == [None]


@pytest.mark.parametrize("make", MAKERS)
def test_single_arrays_keep_their_shape_and_several_are_stacked(make: Any) -> None:
    buffer = StreamBuffer(FixedChunkPolicy(2), 10)
    for index in range(3):
        buffer.put(index, make([index, index + 10]))
    buffer.end(3)
    pair, single = values(buffer)
    assert type(pair) is type(single) is type(make([0]))
    assert pair.tolist() == [[0, 10], [1, 11]]
    assert single.tolist() == [2, 12]


@pytest.mark.parametrize("make", MAKERS)
def test_rows_are_views_where_one_array_holds_them_and_joined_where_not(make: Any) -> None:
    buffer = StreamBuffer(LeftContextChunkPolicy(3, 1), 20, "rows")
    whole = make([[float(row)] for row in range(7)])
    assert buffer.put(0, whole) == 7
    assert buffer.put(7, make([[7.0], [8.0]])) == 2
    buffer.end(9)
    chunks = values(buffer)
    assert [chunk[:, 0].tolist() for chunk in chunks] == [[0, 1, 2], [2, 3, 4, 5], [5, 6, 7, 8], [8]]
    whole[0] = 100.0
    assert chunks[0][0].item() == 100.0  # the same memory
    whole[6] = 100.0
    assert chunks[2][1].item() == 6.0  # a copy


def test_rows_that_came_already_are_skipped() -> None:
    buffer = StreamBuffer(FixedChunkPolicy(1), 20, "rows")
    buffer.put(0, np.arange(3))
    buffer.put(1, np.array([-1, -1, 3, 4]))
    buffer.put(6, np.array([6, 7]))
    buffer.put(6, np.array([6]))
    buffer.put(4, np.array([-1, 5]))
    assert [int(value[0]) for value in values(buffer)] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_rows_hold_no_array_that_is_behind() -> None:
    buffer = StreamBuffer(LeftContextChunkPolicy(4, 2), 100, "rows")
    for index in range(0, 40, 4):
        buffer.put(index, np.zeros((4, 2)))
        values(buffer)
    assert len(buffer._store._arrays) == 1  # type: ignore[attr-defined]


def test_an_array_of_no_rows_may_cut() -> None:
    buffer = StreamBuffer(FixedChunkPolicy(4), 100, "rows")
    buffer.put(0, np.ones((2, 3)))
    assert buffer.put(2, np.ones((0, 3)), cut=True) == 0
    chunk = buffer.take()
    assert (chunk.n_new, chunk.segment_final) == (2, True)


def test_rows_can_be_put_into_a_stream_of_single_items_and_the_other_way_round() -> None:
    ones = StreamBuffer(FixedChunkPolicy(1), 10)
    assert ones.put(0, np.array([[1, 2], [3, 4]]), rows=True) == 2
    assert [value.tolist() for value in values(ones)] == [[1, 2], [3, 4]]
    rows = StreamBuffer(FixedChunkPolicy(2), 10, "rows")
    assert rows.put(0, np.array([1, 2]), rows=False) == 1
    assert rows.put(1, np.array([3, 4]), rows=False) == 1
    assert values(rows)[0].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("value", ["text", 3, None, np.float32(1.0)])
def test_what_has_no_rows_is_rejected(value: Any) -> None:
    buffer = StreamBuffer(FixedChunkPolicy(1), 10, "rows")
    with pytest.raises(Rejected, match="rows"):
        buffer.put(0, value)
    assert (buffer.depth, buffer.free) == (0, 10)
