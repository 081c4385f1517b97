"""Cutting long speech at its pauses."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.whisper.cut import ITEM, LIMIT, cut


def test_what_fits_is_one_piece() -> None:
    assert cut(0, []) == ()
    assert cut(1, []) == (1,)
    assert cut(LIMIT, [0.0] * 100) == (LIMIT,)


def test_the_longest_pause_of_the_second_half_is_taken_in_its_middle() -> None:
    speech = np.ones(1200, dtype=np.float32)
    speech[100:140] = 0  # long, but in the first half
    speech[600:606] = 0
    speech[700:720] = 0
    speech[900:920] = 0  # as long and later
    speech[930:931] = 0
    assert cut(1200 * ITEM, speech) == (910 * ITEM, 1200 * ITEM)


def test_without_a_pause_the_quietest_item_is_cut() -> None:
    speech = np.full(1200, 0.9, dtype=np.float32)
    speech[801] = 0.4
    assert cut(1200 * ITEM, speech) == (801 * ITEM + ITEM // 2, 1200 * ITEM)


@given(
    st.integers(0, 200 * ITEM),
    st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), max_size=220),
    st.integers(4 * ITEM, 40 * ITEM),
)
def test_pieces_are_within_the_limit_and_cover_everything(samples: int, speech: list[float], limit: int) -> None:
    ends = cut(samples, speech, limit=limit)
    assert (ends[-1] if ends else 0) == samples
    assert all(0 < after - before <= limit for before, after in pairwise([0, *ends]))


def test_a_limit_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="limit"):
        cut(100_000, [], limit=ITEM)
