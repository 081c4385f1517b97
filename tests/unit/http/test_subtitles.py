"""Cues out of words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.http.recognising import Word
from server.http.subtitles import LONGEST_SECONDS, MOST_CHARS, Cue, cues, srt, vtt


def words(*given: tuple[str, float, float]) -> list[Word]:
    return [Word(text, start, end, 0.0) for text, start, end in given]


def test_sentences_and_pauses_end_a_cue() -> None:
    found = cues(words(("Hello", 0, 0.4), ("world.", 0.4, 1), ("And", 1, 1.2), ("then", 2.5, 3)))
    assert found == [Cue(0, 1, "Hello world."), Cue(1, 1.2, "And"), Cue(2.5, 3, "then")]
    assert cues([]) == []


@given(st.lists(st.tuples(st.text("ab.", min_size=1, max_size=30), st.floats(0, 2), st.floats(0, 2)), max_size=40))
def test_no_word_is_lost_and_no_cue_is_too_long(given_words: list[tuple[str, float, float]]) -> None:
    now, made = 0.0, []
    for text, gap, length in given_words:
        made.append((text, now + gap, now + gap + length))
        now += gap + length
    found = cues(words(*made))
    assert " ".join(cue.text for cue in found) == " ".join(text for text, _, _ in made)
    for cue in found:
        assert cue.end > cue.start
        assert len(cue.text) <= MOST_CHARS or " " not in cue.text
        assert cue.end - cue.start <= LONGEST_SECONDS + 1e-6 or " " not in cue.text
    assert [cue.start for cue in found] == sorted(cue.start for cue in found)


def test_both_formats_as_players_read_them() -> None:
    shown = [Cue(0.0, 1.5, "a < b & c --> d"), Cue(3661.0004, 3662.0, "yes")]
    assert srt(shown) == (
        "1\n00:00:00,000 --> 00:00:01,500\na < b & c --> d\n\n2\n01:01:01,000 --> 01:01:02,000\nyes\n"
    )
    assert vtt(shown) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\na &lt; b &amp; c --&gt; d\n\n01:01:01.000 --> 01:01:02.000\nyes\n"
    )
