"""What a rule of a language is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from models.speech.traced import Speak, Traced

NUMBER = r"(?:(?<!\d)(?:\d{1,3}(?:,\d{3})++(?!\d)(?:\.\d++)?|\d++(?:\.\d++)?|\.\d++))"
"""A number as it is written, without sign; no groups."""
ALONE = r"(?<![\w.,])"
"""Before something that is not the rest of a word or of a number."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern and what a match of it says."""

    pattern: re.Pattern[str]
    speak: Speak

    def on(self, text: Traced) -> Traced:
        return text.worded(self.pattern, self.speak)


def rule(pattern: str, speak: Speak | str, *, flags: re.RegexFlag = re.ASCII) -> Rule:
    """A rule; a string is said of every match."""
    if isinstance(speak, str):
        fixed = speak
        return Rule(re.compile(pattern, flags), lambda _: fixed)
    return Rule(re.compile(pattern, flags), speak)


def closing(match: re.Match[str]) -> str:
    """ "." if the dot that ends the match ends the text, too."""
    return "." if match[0].rstrip().endswith(".") and not match.string[match.end() :].strip() else ""
