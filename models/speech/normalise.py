"""Written text → speakable text, with a map back (pure).

In English everything becomes words: what comes out holds letters, spaces and `. , ; : ! ? … ' -` only, and is left as
it is when it goes in again. In other languages marks of markdown, addresses and emoji are treated, numbers and
abbreviations are left to the phonemizer of the language. Which written text becomes which words:
`tests/data/normalise.tsv`.
"""

from __future__ import annotations

import re
import unicodedata

from models.speech import english, markup, scripts
from models.speech.passages import START, Place, unsaid
from models.speech.traced import Traced

_SPACES = re.compile(r"\s+")
_BLANK = re.compile(r"[^\S ]+|\s{2,}")
_DASH = re.compile(r"\s*—\s*|\s*--+\s*|\s+[-–]\s+|\s*–\s*")
_LONE_HYPHEN = re.compile(r"(?<![^\W\d_])-|-(?![^\W\d_])")
_LONE_APOSTROPHE = re.compile(r"(?<![^\W\d_])'(?!(?:tis|twas|em|cause|til|n)\b)|(?<!'n)'(?![^\W\d_])")
_BRACKET = re.compile(r"\s?[)\]}]+\s?$|\s?[()\[\]{}]+\s?")
_UNSPEAKABLE = re.compile(r"[^\w\s.,;:!?…'\u0900-\u0963-]|[_\d]")
_LEADING_DOT = re.compile(r"(?<!\S)[.…]+(?=[^\W\d_])")
_BEFORE_MARK = re.compile(r"\s+(?=[,;:.!?…])")
_MARKS = re.compile(r"[,;:](?:\s*[,;:])+")
_NO_PAUSE = re.compile(r",(?=[.!?…])")
_LONG_RUN = re.compile(r"([.!?…])[.!?…,;:]{2,}")
_GLUED = re.compile(r"[,;:!?…](?=[^\W\d_])|(?<=[^\W\d_]{2})(?<!\bPh)\.(?=[^\W\d_])|\.(?=[^\W\d_]{2})")
_AROUND = re.compile(r"^[\s,;:.!?…-]+|\s+$")
_OTHER = re.compile(r"[^\w\s.,;:!?…'%&@#$€£°+=/–—()\"*-]")


def normalise(text: str, language: str = "en-us", place: Place = START) -> Traced:
    """Speakable form of a text, or of a clause that begins at `place`; words are made in their own language only."""
    spans, _ = unsaid(text, place)
    return speakable(Traced.of(text).without(spans), language, line=place.line)


def speakable(text: Traced, language: str = "en-us", *, line: bool = True) -> Traced:
    """Speakable form of what is left of a text without the passages that are not said. `line`: it begins with one."""
    said = _lines(scripts.unified(text))
    said = markup.plain(said, line=line).spelled(_SPACES, lambda _: " ")
    if not language.startswith("en"):
        return _spaced(markup.without_emphasis(said).spelled(_OTHER, _unless_mark))
    said = english.worded(said)
    said = scripts.lettered(markup.without_emphasis(said)).spelled(_SPACES, lambda _: " ")
    said = said.spelled(_BRACKET, _aside).spelled(_DASH, lambda _: ", ").spelled(_UNSPEAKABLE, lambda _: " ")
    said = said.spelled(_LONE_HYPHEN, lambda _: " ").spelled(_LONE_APOSTROPHE, lambda _: "")
    return _named(_spaced(said))


def _named(text: Traced) -> Traced:
    """Names are read until none is left: "Dr." behind a word that was an abbreviation is a street."""
    while True:
        after = _spaced(english.named(text))
        if after.text == text.text:
            return after
        text = after


def _aside(match: re.Match[str]) -> str:
    """What stands in brackets is set apart by pauses."""
    return ", " if match.end() < len(match.string) else ""


def _lines(text: Traced) -> Traced:
    """One space or one line break where there are several."""
    return text.spelled(_BLANK, lambda match: "\n" if "\n" in match[0] else " ")


def _unless_mark(match: re.Match[str]) -> str | None:
    """Marks of letters stay with them."""
    return None if unicodedata.category(match[0]).startswith("M") else " "


def _spaced(text: Traced) -> Traced:
    """Single spaces, marks behind words, none at the beginning."""
    text = text.spelled(_LEADING_DOT, lambda _: "").spelled(_SPACES, lambda _: " ").spelled(_BEFORE_MARK, lambda _: "")
    text = text.spelled(_MARKS, lambda match: match[0][0]).spelled(_NO_PAUSE, lambda _: "").spelled(_LONG_RUN, _short)
    text = text.spelled(_GLUED, lambda match: f"{match[0]} ")
    return text.spelled(_AROUND, lambda _: "")


def _short(match: re.Match[str]) -> str:
    return "..." if match[0].startswith("...") else match[1]
