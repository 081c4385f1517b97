"""Word error rate after Whisper's English normaliser (Radford et al. 2022, appendix C)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from whisper_normalizer.english import EnglishTextNormalizer


@cache
def _normalizer() -> EnglishTextNormalizer:
    return EnglishTextNormalizer()


def words(text: str) -> list[str]:
    """Return the normalised words: lower case, no punctuation, contractions and numbers spelled one way."""
    normal: str = _normalizer()(text)
    return normal.split()


def edits(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Return the least number of substitutions, insertions and deletions between two word lists (Levenshtein)."""
    row = list(range(len(hypothesis) + 1))
    for i, expected in enumerate(reference, start=1):
        above_left, row[0] = row[0], i
        for j, heard in enumerate(hypothesis, start=1):
            above = row[j]
            row[j] = min(above + 1, row[j - 1] + 1, above_left + (expected != heard))
            above_left = above
    return row[-1]


def word_error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Return edits over reference words, both summed over all (reference, hypothesis) pairs.

    Raises `ValueError` when the references hold no word.
    """
    wrong = total = 0
    for reference, hypothesis in pairs:
        expected = words(reference)
        wrong += edits(expected, words(hypothesis))
        total += len(expected)
    if not total:
        raise ValueError("references: no words")
    return wrong / total
