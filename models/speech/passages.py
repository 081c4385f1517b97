"""Stretches of markup that reach over the borders of clauses, and are not said (pure).

A clause is put into words by itself. What it can not know is its `Place`, a function of the text before it. Blocks of
code and comments are left out to their ends, and so is the rest of an address or a tag in which a clause was cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from mstar.tensors import Value

Cut = Literal["", "link", "tag", "address"]
"""What a clause was cut in: the target of a link, a tag of HTML, an address that stands alone."""
Spans = list[tuple[int, int]]
"""Characters [start, end) each, in order."""

_MARKS = re.compile(r"`{3,}")
_CLOSES = re.compile(r"(`{3,})(?![\w`{])")
_LANGUAGE = re.compile(r"[\w+#.-]*[ \t\r]*")
_COMMENT, _COMMENT_ENDS = "<!--", "-->"
_BEGINS: dict[Cut, re.Pattern[str]] = {
    "link": re.compile(r"\]\([^)\s]*(?:\s\"[^\"\n)]*)?\Z"),
    "tag": re.compile(r"<[A-Za-z][\w-]*\s[^<>\n]*\w=[\"'][^<>\n]*\Z"),
    "address": re.compile(r"(?:https?|ftp|wss?)://[!-;=?-~]*\Z", re.IGNORECASE),
}
_ENDS: dict[Cut, re.Pattern[str]] = {
    "link": re.compile(r"(?:[^)\s]*(?:\s\"[^\"\n)]*\")?|[^\"\n)]*\")\)"),
    "tag": re.compile(r"[^<>\n]*>"),
    "address": re.compile(r"[!-;=?-~]+"),
}
_GOES_ON: dict[Cut, re.Pattern[str]] = {
    "link": re.compile(r"[^)\s]+"),
    "tag": re.compile(r"[^<>\n]+"),
    "address": _ENDS["address"],
}
_CUTS: tuple[Cut, ...] = ("", *_BEGINS)
_REACH = 1000
"""Characters before a clause's end in which what it was cut in has begun."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a text's markup a clause begins.

    `fence`: backticks that opened the block of code that it is in, 0 = none. `line`: at the beginning of a line.
    """

    fence: int = 0
    comment: bool = False
    cut: Cut = ""
    line: bool = True

    @classmethod
    def of(cls, value: Value) -> Place:
        """From a node's state."""
        match value:
            case {"fence": int(fence), "comment": bool(comment), "cut": str(given), "line": bool(line)}:
                return cls(fence, comment, next(cut for cut in _CUTS if cut == given), line)
        raise TypeError(f"state: {value!r} is no place")

    def value(self) -> Value:
        return {"fence": self.fence, "comment": self.comment, "cut": self.cut, "line": self.line}


START = Place()
"""Of a text."""


def unsaid(text: str, place: Place) -> tuple[Spans, Place]:
    """What of a clause is not said, and the place behind it."""
    spans: Spans = []
    at = 0
    if place.cut:
        if _GOES_ON[place.cut].fullmatch(text):
            return [(0, len(text))], place
        rest = _ENDS[place.cut].match(text)
        at = rest.end() if rest else 0
        spans += [(0, at)] if at else []
        place = replace(place, cut="")
    while at < len(text):
        stop, end, place = _next(text, at, place)
        spans += [(stop, end)] if stop < end else []
        at = end
    begins = max(spans[-1][1] if spans else 0, len(text) - _REACH)
    if not place.fence and not place.comment and not place.cut:
        for cut, pattern in _BEGINS.items():
            if found := pattern.search(text, begins):
                spans += [] if cut == "address" else [(found.start(), len(text))]
                return spans, replace(place, cut=cut)
    return spans, place


def _next(text: str, at: int, place: Place) -> tuple[int, int, Place]:
    """The rest of a line, or of a comment: [stop, end) of it is not said; `end` is where to go on."""
    if place.comment:
        ends = text.find(_COMMENT_ENDS, at)
        if ends < 0:
            return at, len(text), place
        return at, ends + len(_COMMENT_ENDS), replace(place, comment=False, line=False)
    breaks = text.find("\n", at)
    line, end = (text[at:], len(text)) if breaks < 0 else (text[at:breaks], breaks + 1)
    after = replace(place, line=breaks >= 0)
    if place.fence:
        for closes in _CLOSES.finditer(line):
            if len(closes[1]) >= place.fence:
                return at, at + closes.end(), replace(place, fence=0, line=False)
        return at, end, after
    if opens := _opened(line):
        return at + opens.start(), end, replace(after, fence=len(opens[0]))
    comment = line.find(_COMMENT)
    while comment >= 0 and line[:comment].count("`") % 2:  # quoted: `<!--`
        comment = line.find(_COMMENT, comment + 1)
    if comment >= 0:
        return at + comment, at + comment + len(_COMMENT), replace(place, comment=True, line=False)
    return end, end, after


def _opened(line: str) -> re.Match[str] | None:
    """Marks that open a block of code; behind them may stand its language.

    As in CommonMark 4.5, and wherever language models put them besides: at the end of a line that begins with text.
    """
    marks = list(_MARKS.finditer(line))
    if len(marks) % 2 == 0:  # each closes what the one before has quoted
        return None
    begins, behind = not line[: marks[-1].start()].strip(" \t>"), line[marks[-1].end() :]
    fits = "`" not in behind if begins else _LANGUAGE.fullmatch(behind)
    return marks[-1] if fits else None
