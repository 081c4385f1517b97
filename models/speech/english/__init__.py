"""English: what stands for words becomes words."""

from __future__ import annotations

import re

from models.speech.english import codes, moments, quantities, symbols, words
from models.speech.english.rule import Rule
from models.speech.traced import Traced

_NUMBERS: tuple[Rule, ...] = (
    *codes.CODES,
    *moments.RULES,
    *symbols.BETWEEN_NUMBERS[:2],
    *codes.SIGNS,
    *quantities.MONEY,
    *words.BEFORE_NUMBERS,
    *codes.BEFORE_UNITS,
    *quantities.UNITS,
    *symbols.BETWEEN_NUMBERS[2:],
    *codes.COUNTS,
)
_SIGNS: tuple[Rule, ...] = (*words.WITH, *symbols.SYMBOLS)
_DIGIT = re.compile(r"[\d⁰¹²³⁴-⁹]")
_NAMES: tuple[Rule, ...] = (*words.ABBREVIATIONS, *words.ROMAN)


def worded(text: Traced) -> Traced:
    """Numbers and signs; what reads more of a text comes before what reads less of it."""
    rules = (*_NUMBERS, *_SIGNS) if _DIGIT.search(text.text) else _SIGNS
    for each in rules:
        text = each.on(text)
    return text


def named(text: Traced) -> Traced:
    """Abbreviations and Roman numerals of a text that holds letters and marks only."""
    for each in _NAMES:
        text = each.on(text)
    return text
