"""Incremental text → clauses (pure).

Where a clause ends is a function of the text alone: the border after position e depends on the text from the start of
the clause up to `LOOK_AHEAD` characters behind e. However the text is cut into pieces, the clauses are the same; a
flush is a border of its own.

Ends of sentences are borders; commas, colons, dashes are, once enough words stand before them (few in the first clause
of a response, so that sound comes early; more later, so that it does not sound chopped). The first clause also ends
before a word that links it to what follows ("because", "and"), as a speaker might pause there. Else a clause is cut at
a space when it gets too long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from models.speech.passages import START, Place, unsaid

LOOK_AHEAD = 8  # characters behind a mark that may be read: closing quotes, a space, the next letter, a linking word

_SENTENCE = ".!?…"
_PAUSE = ",;:–—-"
_DASHES = "–—-"
_CJK_SENTENCE = "。！？｡"
_CJK_PAUSE = "，、；："
_BORDERS = frozenset(_SENTENCE + _PAUSE + _CJK_SENTENCE + _CJK_PAUSE + "\n")
_CLOSERS = "\"'”’»›)]}*_`」』）】》"
_ALWAYS_GOES_ON = frozenset(
    """mr mrs dr prof rev hon mt gen col lt capt sgt sen rep gov pres vs e.g i.e eg ie cf approx dept bros nos figs vol
    vols pp eds tel st ms ft jan feb apr jun jul aug sep sept oct nov dec tue tues thu thur thurs fri""".split()  # noqa: SIM905
)
_MAY_END = frozenset(
    "etc inc ltd co corp jr sr a.m p.m am pm al no sat sun mar mon wed min max ed ext fig est sec ch".split()  # noqa: SIM905
)
_LINKS = frozenset(
    """about and as at because but by called for from if in into on or since so that through unless until when where
    whereas which while who with""".split()  # noqa: SIM905
)
_WORD = re.compile(r"[^\s]*\w[^\s]*")
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_INITIALS = re.compile(r"[^\W\d_](?:\.[^\W\d_])+")
_LAST_TOKEN = re.compile(r"\S+$")


@dataclass(frozen=True, slots=True)
class Clause:
    """A stretch of a response's text; the clauses of a response lie end to end.

    `open`: it was cut between two words of a sentence, not at a mark. `place`: where in the text's markup it begins.
    """

    text: str
    start: int  # characters of the response's text [start, end)
    end: int
    index: int
    open: bool = False
    place: Place = START


@dataclass(frozen=True, slots=True)
class ClauseRules:
    """Words before a pause mark ends a clause, and characters after which it is cut at a space.

    `first_link_words`: words before a linking word ends the first clause, 0 = none does.
    """

    first_words: int = 3
    first_link_words: int = 4
    first_chars: int = 72
    words: int = 8
    chars: int = 220


@dataclass(frozen=True, slots=True)
class Clauses:
    """The state of a splitter, a value: `feed` and `flush` return the clauses found and the next state."""

    rules: ClauseRules = field(default_factory=ClauseRules)
    pending: str = ""
    start: int = 0  # characters before `pending`
    count: int = 0
    place: Place = START  # where `pending` begins

    def feed(self, text: str) -> tuple[list[Clause], Clauses]:
        return self._cut(self.pending + text, last=False)

    def flush(self) -> tuple[list[Clause], Clauses]:
        """What is pending ends here; what follows is a text of its own."""
        found, state = self._cut(self.pending, last=True)
        return found, replace(state, place=START)

    def _cut(self, pending: str, *, last: bool) -> tuple[list[Clause], Clauses]:
        found: list[Clause] = []
        start, count, place = self.start, self.count, self.place
        while pending:
            first = count == 0
            words = self.rules.first_words if first else self.rules.words
            chars = self.rules.first_chars if first else self.rules.chars
            links = self.rules.first_link_words if first else 0
            end = border(pending, words=words, chars=chars, links=links, last=last)
            if end is None:
                break
            cut = end < len(pending) or not last
            between = cut and pending[:end].rstrip()[-1:].isalnum() and "\n" not in pending[:end]
            found.append(Clause(pending[:end], start, start + end, count, between, place))
            _, place = unsaid(pending[:end], place)
            pending, start, count = pending[end:], start + end, count + 1
        return found, replace(self, pending=pending, start=start, count=count, place=place)


def border(text: str, *, words: int, chars: int, last: bool, links: int = 0) -> int | None:
    """Length of the first clause of `text`, or None if that needs more text (never if `last` and there is any).

    A pause mark counts after `words` words, a linking word after `links` (0 = never); the clause has at most `chars`
    characters.
    """
    at = 0
    while at < min(len(text), chars):
        if not last and len(text) < at + 1 + LOOK_AHEAD and _undecided(text, at, links):
            return None
        if links and _links(text, at) and _count(text[:at]) >= links:
            return at + 1
        if end := _ends_at(text, at, words):
            return min(end, chars)
        at += 1
    if len(text) >= chars:
        return _forced(text, chars)
    return len(text) if last else None


def _links(text: str, at: int) -> bool:
    """Whether a linking word stands behind the space at `at`, between two words."""
    if text[at] != " " or not text[:at][-1:].isalnum():
        return False
    word, space, _ = text[at + 1 : at + 1 + LOOK_AHEAD].partition(" ")
    return bool(space) and word in _LINKS


def _undecided(text: str, at: int, links: int) -> bool:
    """Whether what stands at `at` may be a border that the text behind it decides, and that text is not there yet."""
    if links and text[at] == " ":
        begun = text[at + 1 :]
        return " " not in begun and any(word.startswith(begun) for word in _LINKS)
    if text[at] == "\n" or text[at] not in _BORDERS:
        return False
    behind = _closed(text, at + 1)
    if text[at] in _CJK_SENTENCE + _CJK_PAUSE:
        return behind >= len(text)
    if behind >= len(text):
        return True
    if not text[behind].isspace() or text[behind] == "\n":
        return False
    return text[at] in _SENTENCE + _DASHES and behind + 1 >= len(text)


def _closed(text: str, at: int) -> int:
    """Index behind at most three closing quotes or brackets."""
    stop = min(len(text), at + 3)
    while at < stop and text[at] in _CLOSERS:
        at += 1
    return at


def _ends_at(text: str, at: int, words: int) -> int:
    """Length of the clause if the character at `at` ends it, else 0."""
    mark = text[at]
    if mark not in _BORDERS:
        return 0
    spoken = _count(text[:at])
    if spoken == 0:
        return 0
    behind = _closed(text, at + 1)
    if mark == "\n":
        return at + 1
    if mark in _CJK_SENTENCE:
        return behind
    if mark in _CJK_PAUSE:
        return behind if spoken >= words else 0
    if (
        behind < len(text) and not text[behind].isspace()
    ):  # "3.14", "10:30", "well-known"; but a long dash needs no space
        return behind if mark == "—" and behind == at + 1 and spoken >= words else 0
    end = min(len(text), behind + 1)
    if mark in _PAUSE or _only_pauses(text, at, text[behind + 1 : behind + 2]):
        return end if spoken >= words and not _goes_on(text, at, text[behind + 1 : behind + 2]) else 0
    return 0 if _goes_on(text, at, text[behind + 1 : behind + 2]) else end


def _only_pauses(text: str, at: int, following: str) -> bool:
    """“Really?” he said; so... maybe; U.S. Army: at most a pause."""
    return following.islower() or (text[at] == "." and bool(_INITIALS.fullmatch(_last_token(text[:at]))))


def _goes_on(text: str, at: int, following: str) -> bool:
    """Whether the mark at `at` ends nothing: a list number, an abbreviation, an initial; a dash between numbers."""
    if text[at] in _DASHES:
        return following.isdigit() and text[:at].rstrip()[-1:].isdigit()
    if text[at] != ".":
        return False
    if text[:at].strip(" \t\n*_-#>+•").isdigit():
        return True  # "2. " at the beginning of a clause
    word = _last_token(text[:at])
    if word in _MAY_END:
        return following.isdigit() or following.islower()
    initial = len(word) == 1 and word.isalpha() and word != "i"
    return initial or word in _ALWAYS_GOES_ON


def _last_token(before: str) -> str:
    match = _LAST_TOKEN.search(before)
    return match[0].lstrip("\"'“‘(«[*_").lower() if match else ""


def _count(text: str) -> int:
    """Words of a text; two ideographs count as one."""
    ideographs = len(_IDEOGRAPH.findall(text))
    return len(_WORD.findall(_IDEOGRAPH.sub(" ", text))) + (ideographs + 1) // 2


def _forced(text: str, chars: int) -> int:
    """Cut before the bound at the last space behind a word, or at the bound itself."""
    for at in range(chars - 1, 0, -1):
        if text[at].isspace() and text[:at].strip():
            return at + 1
    return chars
