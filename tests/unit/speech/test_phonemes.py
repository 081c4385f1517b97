"""Phonemes as a Piper voice was trained on them, and the words they belong to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.speech.espeak import ipa
from models.speech.phonemes import phonemize
from mstar.errors import WeightsError


def words(text: str) -> list[tuple[str, str]]:
    found = phonemize(text, "en-us")
    return [(text[w.start : w.end], found.text[w.first : w.last].strip()) for w in found.words]


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("Hello world.", "həlˈoʊ wˈɜːld."),
        (
            "The quick brown fox jumps over the lazy dog, doesn't it?",
            "ðə kwˈɪk bɹˈaʊn fˈɑːks dʒˈʌmps ˌoʊvɚ ðə lˈeɪzi dˈɑːɡ, dˈʌzənt ɪt?",
        ),
    ],
)
def test_equals_what_piper_says(text: str, phonemes: str) -> None:
    assert phonemize(text, "en-us").text == phonemes


def test_merged_words_share_their_phonemes() -> None:
    assert words("one of the best.") == [("one", "wˈʌn"), ("of", "ʌvðə"), ("the", "ʌvðə"), ("best.", "bˈɛst.")]


def test_a_word_spoken_as_several_has_them_all() -> None:
    assert words("all 42 cats")[1] == ("42", "fˈɔːɹɾi tˈuː")


def test_an_abbreviation_does_not_end_the_sentence() -> None:
    assert phonemize("in the U.S. today", "en-us").text == "ɪnðə jˌuːˈɛs tədˈeɪ"


def test_punctuation_inside_the_text_stays_where_it_is() -> None:
    assert [w for w, p in words("Well, no; yes: so! why? (maybe)") if p[-1] in ",;:!?"] == [
        "Well,", "no;", "yes:", "so!", "why?",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "  ", "...", "—", "“”"])
def test_nothing_to_say(text: str) -> None:
    assert phonemize(text, "en-us").words == ()


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(WeightsError, match="no voice 'klingonese'"):
        ipa("word", "klingonese")
    assert ipa("word", "en-us") == "wˈɜːd"


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            "of the and I would have 42 $5 3.14 it's well-known St. a in going to U.S. yes, no. why? café".split()  # noqa: SIM905
        ),
        max_size=20,
    ).map(" ".join)
)
def test_words_are_in_order_and_cover_the_phonemes(text: str) -> None:
    found = phonemize(text, "en-us")
    assert [(w.start, w.end) for w in found.words] == sorted({(w.start, w.end) for w in found.words})
    at = 0
    for before, word in zip((None, *found.words), found.words, strict=False):
        if before is not None and (word.first, word.last) == (before.first, before.last):
            continue
        assert word.first == at
        assert word.first < word.last
        at = word.last
    assert at == len(found.text)
