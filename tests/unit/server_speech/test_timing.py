from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from server.speech.context import Word
from server.speech.timing import Span, Timeline, characters, spans

WORDS = (Word("", "Hi,", 0, 30), Word("  ", "you", 30, 100))


def test_characters_divide_their_word_and_those_between_take_no_time() -> None:
    assert characters(WORDS) == [
        Span("H", 0, 10),
        Span("i", 10, 20),
        Span(",", 20, 30),
        Span(" ", 30, 30),
        Span(" ", 30, 30),
        Span("y", 30, 53),
        Span("o", 53, 76),
        Span("u", 76, 100),
    ]
    assert spans(WORDS) == [Span("Hi,", 0, 30), Span("you", 30, 100)]


@given(st.lists(st.tuples(st.text(max_size=3), st.text(min_size=1, max_size=9), st.integers(0, 50)), max_size=9))
def test_characters_are_in_order_and_cover_their_words(given: list[tuple[str, str, int]]) -> None:
    words, at = [], 0
    for before, text, length in given:
        words.append(Word(before, text, at, at + length))
        at += length
    told = characters(words)
    assert "".join(each.text for each in told) == "".join(before + text for before, text, _ in given)
    assert all(one.end == two.start for one, two in itertools.pairwise(told))
    assert not told or (told[0].start, told[-1].end) == (0, at)


def test_what_was_told_comes_out_with_the_sound_it_begins_in() -> None:
    line = Timeline()
    line.add(spans(WORDS))
    assert line.take(0) == []
    assert line.take(1) == [Span("Hi,", 0, 30)]
    assert line.take(30) == []
    assert [each.cut(60) for each in line.take(60)] == [Span("you", 30, 60)]
    assert line.take(1000) == []
