from __future__ import annotations

from pathlib import Path

import pytest

from tests.wer import edits, word_error_rate, words

SENTENCES = Path(__file__).parents[2] / "data" / "sentences.txt"


@pytest.mark.parametrize(
    ("reference", "hypothesis", "expected"),
    [
        ("a b c", "a b c", 0),
        ("a b c", "a x c", 1),
        ("a b c", "a c", 1),
        ("a b c", "a b b c", 1),
        ("a b c", "", 3),
        ("", "a b", 2),
        ("a b c d", "b c d e", 2),
    ],
)
def test_edits_counts_the_least_changes(reference: str, hypothesis: str, expected: int) -> None:
    assert edits(reference.split(), hypothesis.split()) == expected


def test_case_punctuation_and_contractions_are_no_errors() -> None:
    assert word_error_rate([("It's late, isn't it?", "it is late is not it")]) == 0.0


def test_spelling_of_numbers_is_no_error() -> None:
    assert words("twenty one pilots") == words("21 pilots")


def test_rate_is_over_all_words_and_not_a_mean_of_rates() -> None:
    pairs = [("one wrong", "one right"), ("these six words are all heard", "these six words are all heard")]
    assert word_error_rate(pairs) == pytest.approx(1 / 8)


def test_a_runaway_hypothesis_exceeds_one() -> None:
    assert word_error_rate([("hello", "hello hello hello")]) == 2.0


def test_no_reference_words_is_an_error() -> None:
    with pytest.raises(ValueError, match="references"):
        word_error_rate([("[noise]", "something")])


def test_the_fixed_sentences_are_thirty_without_digits() -> None:
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
    assert len(sentences) == len(set(sentences)) == 30
    for sentence in sentences:
        assert 4 <= len(sentence.split()) <= 14
        assert not any(character.isdigit() for character in sentence)
        assert words(sentence)
        assert not any(word.isdigit() for word in words(sentence))
