"""What is said for what is written, and the way back."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.speech.english.numbers import cardinal, fraction, of_roman, ordinal, roman, year
from models.speech.normalise import normalise

TABLE = Path(__file__).parents[2] / "data" / "normalise.tsv"
MARKS = frozenset(" .,;:!?…'-")
LONGEST = 40
"""Characters said for one that is written, at most: "9" is "nine", "²" "to the power of …"."""


def rows() -> list[tuple[str, str]]:
    """Written and spoken; `\\n`, `\\t` and a doubled backslash are written as such."""
    found = []
    for line in TABLE.read_text("utf-8").split("\n")[1:-1]:
        written, _, spoken = line.partition("\t")
        for sign, character in (("\\n", "\n"), ("\\t", "\t"), ("\\\\", "\\")):
            written = written.replace(sign, character)
        found.append((written, spoken))
    return found


def test_the_table() -> None:
    table = rows()
    assert len(table) >= 300
    wrong = [(written, spoken, said) for written, spoken in table if (said := normalise(written).text) != spoken]
    assert wrong == []


def test_words_of_a_language_are_made_in_that_language_only() -> None:
    assert normalise("St. **Gallen** hat 3 Züge 🙂 & Ärger!", "de").text == "St. Gallen hat 3 Züge & Ärger!"
    assert normalise("Привет, [мир](http://a.de)", "ru").text == "Привет, мир"


SIGNS = st.sampled_from(
    """Dr. St. e.g. etc. p.m. 5 10 1999 1/2 - – — $ € % ° km / : . , ! ? ' " * ** _ ` # @ | [ ] ( ) http://a.b x.com
    a@b.co VIII Henry II ½ ² µ Ω π Ж 今 नमस्ते 가 é e\u0301 \ufe0f 🙂 \ud800 - + = < > & &amp; &mdash; &#8212; &x; ~ ^ \\
    v1.2 No. Jan. 5th
    3:00 am -5 1,000 .5 ... … ’ “ 'n' w/ I X V A M -- 'tis s' C# C++ -> <b> x 1e5 [1] 1. ﷺ ㎏ ™ № ① 1️⃣""".split()  # noqa: SIM905
)
TEXTS = st.one_of(
    st.text(max_size=120),
    st.lists(SIGNS, max_size=25).map("".join),
    st.lists(SIGNS, max_size=25).map(" ".join),
    st.lists(SIGNS, max_size=25).map("\n".join),
)


@given(TEXTS)
def test_any_text_becomes_speakable_and_is_then_left_as_it_is(written: str) -> None:
    said = normalise(written).text
    assert all(each in MARKS or unicodedata.category(each)[0] in "LM" for each in said)
    assert len(said) <= LONGEST * len(written)
    assert normalise(said).text == said


@given(TEXTS)
def test_every_spoken_character_comes_from_somewhere_in_order(written: str) -> None:
    said = normalise(written)
    assert len(said.text) == len(said.starts) == len(said.ends)
    assert list(said.starts) == sorted(said.starts)
    assert list(said.ends) == sorted(said.ends)
    assert all(0 <= a < b <= len(written) for a, b in zip(said.starts, said.ends, strict=True))


@pytest.mark.parametrize(
    "unit",
    [
        "1",
        "1,",
        "1.",
        "1-",
        "$1-",
        "+1 ",
        "a.",
        "a@",
        "[",
        "](",
        "(",
        "<a ",
        '<a b="',
        "<a b='c' ",
        " a=",
        "\n~~~a",
        "&a",
        "* ",
        "_ ",
        "| ",
        "\n- ",
        "`",
        " ",
        "\t",
        "/a",
    ],
)
def test_a_long_text_of_one_sign_takes_no_longer_than_a_long_text(unit: str) -> None:
    """Tens of thousands of characters: what tried every start with every end would not come back."""
    said = normalise((unit * 20_000)[:20_000]).text
    assert len(said) <= LONGEST * 20_000


@pytest.mark.parametrize(
    ("written", "said", "source"),
    [
        ("say **bold** now", "bold", "bold"),
        ("say Dr. Who", "Doctor", "Dr."),
        ("see [the docs](http://a.io) now", "docs", "docs"),
        ("at example.com now", "dot", "example.com"),
        ("it costs $5.50 now", "cents", "$5.50"),
        ("on Jan. 5, 2024 we", "twenty-four", "Jan. 5, 2024"),
        ("from 10–20 on", "twenty", "20"),
        ("Henry VIII ate", "eighth", "Henry VIII"),
    ],
)
def test_a_spoken_word_maps_to_what_is_written(written: str, said: str, source: str) -> None:
    spoken = normalise(written)
    at = spoken.text.index(said)
    start, end = spoken.written(at, at + len(said))
    assert written[start:end] == source


def test_numbers() -> None:
    assert [cardinal(each) for each in (0, 19, 80, 105, 1_000_001)] == [
        "zero", "nineteen", "eighty", "one hundred five", "one million one",
    ]  # fmt: skip
    assert cardinal(10**15 - 1).startswith("nine hundred ninety-nine trillion nine hundred ninety-nine billion")
    assert [ordinal(each) for each in (0, 3, 12, 20, 42, 1000)] == [
        "zeroth", "third", "twelfth", "twentieth", "forty-second", "one thousandth",
    ]  # fmt: skip
    assert [year(each) for each in (1066, 1905, 1900, 2000, 2009, 2010)] == [
        "ten sixty-six", "nineteen oh five", "nineteen hundred", "two thousand", "two thousand nine", "twenty ten",
    ]  # fmt: skip
    assert [fraction(1, 2), fraction(3, 4), fraction(2, 5), fraction(7, 3)] == [
        "one half", "three quarters", "two fifths", "seven over three",
    ]  # fmt: skip


@given(st.integers(1, 3999))
def test_a_roman_numeral_has_one_right_spelling(number: int) -> None:
    assert of_roman(roman(number)) == number
    assert of_roman("I" * 4) is None
