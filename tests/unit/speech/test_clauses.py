"""Clauses: borders by the text alone, nothing lost, early and natural."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.speech.clauses import LOOK_AHEAD, Clause, ClauseRules, Clauses


def split(pieces: list[str], rules: ClauseRules | None = None) -> list[Clause]:
    state = Clauses(rules or ClauseRules())
    found: list[Clause] = []
    for piece in pieces:
        new, state = state.feed(piece)
        found += new
    new, state = state.flush()
    assert state.pending == ""
    return found + new


def texts(text: str) -> list[str]:
    return [c.text for c in split([text])]


WORDS = st.sampled_from(
    [
        *("a", "the", "Mr.", "St.", "Louis", "3.14", "10:30", "U.S.", "e.g.", "well,", "yes.", "so...", "“Really?”"),
        *(
            "No!",
            "then;",
            "–",
            "—",
            "that—this",
            "(ok).",
            "\n",
            "\n\n",
            "1.",
            "12,000",
            "Ünïcödé",
            "今日は。",
            "はい、",
        ),
        *("「え？」", "🙂", "J.", "p.m.", "a.b@c.de.", "**bold**:", "…", "?!", "  "),
    ]
)
TEXTS = st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=60).map(" ".join), st.lists(WORDS).map("".join))


@given(TEXTS, st.data())
def test_any_split_of_the_text_gives_the_same_clauses(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
    whole = split([text])
    assert split(pieces) == whole
    assert split(list(text)) == whole


@given(TEXTS)
def test_clauses_lie_end_to_end_over_the_whole_text(text: str) -> None:
    found = split([text])
    assert "".join(c.text for c in found) == text
    assert [c.index for c in found] == list(range(len(found)))
    at = 0
    for clause in found:
        assert (clause.start, clause.end) == (at, at + len(clause.text))
        assert clause.text == text[clause.start : clause.end]
        at = clause.end


@given(TEXTS)
def test_a_clause_is_never_empty_nor_longer_than_its_bound(text: str) -> None:
    rules = ClauseRules()
    for clause in split([text], rules):
        assert 0 < len(clause.text) <= (rules.chars if clause.index else rules.first_chars)


@given(TEXTS)
def test_a_border_waits_for_a_bounded_look_ahead_only(text: str) -> None:
    rules = ClauseRules()
    state = Clauses(rules)
    for character in text:
        _, state = state.feed(character)
        assert len(state.pending) <= (rules.chars if state.count else rules.first_chars) + LOOK_AHEAD


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I am fine. You?", ["I am fine. ", "You?"]),
        ("Mr. Smith met Dr. Who in St. Louis. Good.", ["Mr. Smith met Dr. Who ", "in St. Louis. ", "Good."]),
        ("It costs 3.14 or 1,000 at 10:30. Fine.", ["It costs 3.14 or 1,000 ", "at 10:30. ", "Fine."]),
        ("We use, e.g. here. Then go.", ["We use, e.g. here. ", "Then go."]),
        ("J. R. R. Tolkien wrote. It sold.", ["J. R. R. Tolkien wrote. ", "It sold."]),
        ("The U.S. Army came. It went.", ["The U.S. Army came. ", "It went."]),
        ("See No. 5 now. No. Never.", ["See No. 5 now. ", "No. ", "Never."]),
        ("She left at 5 p.m. on Monday. Late.", ["She left at 5 p.m. on Monday. ", "Late."]),
        ("Wait... what is it? Yes.", ["Wait... what is it? ", "Yes."]),
        ("Visit example.com. Then call.", ["Visit example.com. ", "Then call."]),
        ("“Stop!” He ran. “Why?” she asked.", ["“Stop!” ", "He ran. ", "“Why?” she asked."]),
        ("Here it is:\n1. First\n2. Second\n", ["Here it is:\n", "1. First\n", "2. Second\n"]),
        ("今日は。「はい。」と言った、そして", ["今日は。", "「はい。」", "と言った、そして"]),
        ("Hello there, friend. Bye.", ["Hello there, friend. ", "Bye."]),
        ("Sure, I can do that, of course.", ["Sure, I can do that, ", "of course."]),
        ("Well-known people — like her — came.", ["Well-known people — like her — ", "came."]),
        ("It takes about 10 - 20 minutes. Fine.", ["It takes about 10 - 20 minutes. ", "Fine."]),
        ("It takes about 10 - well, long.", ["It takes about 10 - ", "well, long."]),
        ("One two three—four.", ["One two three—", "four."]),
    ],
)
def test_borders(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_the_first_clause_is_cut_earlier_than_the_others() -> None:
    line = "we went to the market, and we bought apples, "
    first, second, *_ = texts(line * 4)
    assert first == "we went to the market, "
    assert second == "and we bought apples, we went to the market, "


def test_a_sentence_end_is_a_border_as_soon_as_the_next_word_begins() -> None:
    found, state = Clauses().feed("I see. ")
    assert found == []
    found, _ = state.feed("N")
    assert [c.text for c in found] == ["I see. "]


def test_flush_is_a_border() -> None:
    found, state = Clauses().feed("half a sen")
    assert found == []
    found, state = state.flush()
    assert [c.text for c in found] == ["half a sen"]
    found, state = state.feed("tence. And")
    assert [(c.text, c.start) for c in found] == [("tence. ", 10)]
    assert state.pending == "And"
