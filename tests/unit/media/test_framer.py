import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from media.framer import MIC_ITEM, Framer, PreRoll
from media.frames import Pcm16


def count_up(total: int) -> Pcm16:
    return np.arange(total, dtype=np.int16)


@given(st.integers(1, 600), st.lists(st.integers(0, 900), max_size=12))
@settings(deadline=None)
def test_items_do_not_depend_on_the_cut(size: int, chunks: list[int]) -> None:
    pcm = count_up(sum(chunks))
    framer = Framer(size, np.int16)
    at = 0
    items = []
    for chunk in chunks:
        items += framer.feed(pcm[at : at + chunk])
        at += chunk
        assert framer.position == at
        assert framer.pending < size
    assert [item.start for item in items] == list(range(0, pcm.size // size * size, size))
    for item in items:
        assert item.real == size
        assert np.array_equal(item.pcm, pcm[item.start : item.start + size])
    tail = framer.flush(pad=True)
    if pcm.size % size:
        assert tail is not None
        assert (tail.start, tail.real, tail.pcm.size) == (pcm.size // size * size, pcm.size % size, size)
        assert np.array_equal(tail.pcm[: tail.real], pcm[tail.start :])
        assert not tail.pcm[tail.real :].any()
    else:
        assert tail is None


def test_an_item_is_not_changed_by_what_is_fed_later() -> None:
    framer = Framer(4, np.float32)
    source = np.ones(6, dtype=np.float32)
    (item,) = framer.feed(source)
    source[:] = 7
    assert framer.feed(np.zeros(2, dtype=np.float32))[0].pcm.tolist() == [1, 1, 0, 0]
    assert item.pcm.tolist() == [1, 1, 1, 1]


def test_after_a_flush_positions_go_on_without_the_padding() -> None:
    framer = Framer(MIC_ITEM, np.int16)
    framer.feed(count_up(700))
    assert framer.flush(pad=False) is not None
    (item,) = framer.feed(count_up(MIC_ITEM))
    assert item.start == 700


def test_reset_drops_the_rest_and_keeps_time() -> None:
    framer = Framer(10, np.int16)
    framer.feed(count_up(15))
    framer.reset()
    assert framer.feed(count_up(10))[0].start == 15
    framer.reset(1000)
    assert framer.feed(count_up(10))[0].start == 1000


def test_a_wrong_type_is_refused() -> None:
    with pytest.raises(ValueError, match="pcm must be float32"):
        Framer(4, np.float32).feed(count_up(4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pcm must be int16"):
        PreRoll(4, np.int16).push(np.zeros((2, 2), dtype=np.int16))


@given(st.integers(1, 50), st.lists(st.integers(0, 120), max_size=10), st.integers(-10, 700))
@settings(deadline=None)
def test_pre_roll_is_the_end_of_the_stream(capacity: int, chunks: list[int], position: int) -> None:
    pcm = count_up(sum(chunks))
    ring = PreRoll(capacity, np.int16)
    at = 0
    for chunk in chunks:
        ring.push(pcm[at : at + chunk])
        at += chunk
    start, kept = ring.since(position)
    assert ring.end == pcm.size
    assert start == min(max(position, pcm.size - capacity, 0), pcm.size)
    assert np.array_equal(kept, pcm[start:])


def test_pre_roll_after_reset_knows_nothing_older() -> None:
    ring = PreRoll(8, np.int16)
    ring.push(count_up(8))
    ring.reset(100)
    ring.push(count_up(3))
    start, kept = ring.since(0)
    assert (start, kept.tolist()) == (100, [0, 1, 2])
