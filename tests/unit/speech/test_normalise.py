"""What is said for what is written, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.speech.normalise import normalise


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("**Hello** `world`", "Hello world"),
        ("*so* __it__ ~~is~~", "so it is"),
        ("snake_case stays", "snake_case stays"),
        ("# Title", "Title"),
        ("- item", "item"),
        ("> quoted", "quoted"),
        ("see [the docs](https://a.b/c) now", "see the docs now"),
        ("go to https://www.example.com/a-b?x=1.", "go to example dot com slash a dash b."),
        ("go to example.com, ok", "go to example dot com, ok"),
        ("mail joe.b@x-y.org!", "mail joe dot b at x dash y dot org!"),
        ("fine 🙂👍🏽 ok", "fine   ok"),
        ("word — word", "word, word"),
        ("word—word", "word, word"),
        ("10–20 well-known", "10–20 well-known"),
        ("Mr. Smith and Dr. Who", "Mister Smith and Doctor Who"),
        ("St. Louis", "Saint Louis"),
        ("this, e.g. that", "this, for example that"),
        ("and so on, etc.", "and so on, et cetera."),
        ("3.14 at 10:30", "3.14 at 10:30"),
        ("most. Then", "most. Then"),
    ],
)
def test_table(written: str, spoken: str) -> None:
    assert normalise(written).text.strip() == spoken


def test_words_of_a_language_are_made_in_that_language_only() -> None:
    assert normalise("St. Gallen", "de").text == "St. Gallen"


@given(st.text(max_size=120))
def test_every_spoken_character_comes_from_somewhere_in_order(written: str) -> None:
    spoken = normalise(written)
    assert len(spoken.text) == len(spoken.starts) == len(spoken.ends)
    assert list(spoken.starts) == sorted(spoken.starts)
    assert all(0 <= a < b <= len(written) for a, b in zip(spoken.starts, spoken.ends, strict=True))


@pytest.mark.parametrize(
    ("written", "said", "source"),
    [
        ("say **bold** now", "bold", "bold"),
        ("say Dr. Who", "Doctor", "Dr."),
        ("see [the docs](http://a.io) now", "docs", "docs"),
        ("at example.com now", "dot", "example.com"),
    ],
)
def test_a_spoken_word_maps_to_what_is_written(written: str, said: str, source: str) -> None:
    spoken = normalise(written)
    at = spoken.text.index(said)
    start, end = spoken.written(at, at + len(said))
    assert written[start:end] == source
