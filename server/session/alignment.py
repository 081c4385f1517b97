"""Which text was heard when a sound was cut: sample ↔ word ↔ character."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """Characters [first, last) of an answer's text, spoken in samples [start, end) of its sound."""

    first: int
    last: int
    start: int
    end: int


def heard_text(text: str, words: Sequence[Word], samples: int) -> str:
    """The text up to and with the last word that ends by `samples`; "" where the words' times are not known."""
    heard = [word.last for word in words if word.end <= samples]
    return text[: max(heard, default=0)]


def begun_text(text: str, words: Sequence[Word], samples: int) -> str:
    """The text up to and with the last word that begins before `samples`; all of it where no word's time is known."""
    if not words:
        return text
    begun = [word.last for word in words if word.start < samples]
    return text[: max(begun, default=0)]
