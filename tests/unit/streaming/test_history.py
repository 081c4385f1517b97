"""The last items of a live input, by absolute index."""

from __future__ import annotations

import numpy as np
import pytest

from mstar.errors import Rejected
from mstar.streaming.history import History


def test_it_keeps_at_least_the_last_items_whatever_the_sizes_they_come_in() -> None:
    for capacity in (1, 5, 8):
        history = History(capacity)
        index = 0
        for size in (1, 3, 0, 2, 7, 1, 1, 20, 4, 4, 4):
            history.put(index, np.arange(index, index + size)[:, None])
            index += size
            assert history.stop == index
            assert history.start == max(0, index - capacity)
            kept = history.slice(history.start, history.stop)
            assert kept[:, 0].tolist() == list(range(history.start, index))


def test_a_slice_is_ready_when_its_items_have_come() -> None:
    history = History(4)
    assert history.ready(0)
    assert not history.ready(1)
    history.put(0, np.zeros((3, 2), np.float32))
    assert history.ready(3)
    assert not history.ready(4)
    assert history.slice(1, 1).shape == (0, 2)


@pytest.mark.parametrize(("start", "stop"), [(1, 4), (4, 9), (6, 5), (-1, 3)])
def test_a_slice_out_of_the_window_is_rejected(start: int, stop: int) -> None:
    history = History(4)
    history.put(0, np.arange(8))
    with pytest.raises(Rejected, match=r"4\.\.8 are") as caught:
        history.slice(start, stop)
    assert caught.value.code == "out_of_window"


def test_a_slice_stays_what_it_was() -> None:
    history = History(2)
    history.put(0, np.array([0, 1]))
    piece = history.slice(0, 2)
    for index in range(2, 12):
        history.put(index, np.array([index]))
    assert piece.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        piece[0] = 5


def test_known_items_are_ignored_and_a_gap_is_rejected() -> None:
    history = History(10)
    history.put(0, np.arange(4))
    history.put(2, np.array([-1, -1, 4]))
    history.put(0, np.array([-1]))
    assert history.slice(0, 5).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(Rejected, match="gap"):
        history.put(6, np.array([6]))


def test_items_of_another_kind_are_rejected() -> None:
    history = History(4)
    history.put(0, np.zeros((1, 512), np.float32))
    for other in (np.zeros((1, 256), np.float32), np.zeros((1, 512), np.float64)):
        with pytest.raises(Rejected, match="on a stream of"):
            history.put(1, other)
    assert history.stop == 1


def test_a_history_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="keeps nothing"):
        History(0)
