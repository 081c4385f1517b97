"""Stretches of markup that reach over the borders of clauses, and are not said (pure).

A clause is put into words by itself. What it can not know is its `Place`, a function of the text before it. Blocks of
code and comments are left out to their ends, and so is the rest of an address or a tag in which a clause was cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from mstar.tensors import Value

Cut = Literal["", "link", "tag", "double", "single", "address"]
"""What a clause was cut in: the target of a link; a tag of HTML, in it a quoted value; an address that stands alone."""
Spans = list[tuple[int, int]]
"""Characters [start, end) each, in order."""

_REACH = 1000
"""Characters before a clause's end in which what it was cut in has begun; and of the longest tag that is left out."""

_MARKS = re.compile(r"(?P<marks>`{3,})")
_CLOSES = re.compile(r"(`{3,})(?![\w`{])")
_LANGUAGE = re.compile(r"(?:[\w+#.-]*[\w+#])?(?:[ \t\r]*\n)?")
_TILDES = re.compile(r"[ \t>]*(?P<marks>~{3,})[\w+#.-]*[\w+#](?:[ \t\r]*\n)?")
_TILDES_CLOSE = re.compile(r"[ \t>]*(~{3,})[ \t\r]*\n?")
_INDENT = " \t>"
_COMMENT, _COMMENT_ENDS = "<!--", "-->"

_BLANK = r"[ \t\r]"
_VALUE = r"(?:\"[^\"<>\n]*+\"|'[^'<>\n]*+'|[\w#%./:+-]*[\w%/])"
_ATTRIBUTE = rf"[\w:@-]++(?:{_BLANK}*+={_BLANK}*+{_VALUE})?+"
_OPEN_VALUE = rf"={_BLANK}*+(?:(?P<double>\"[^\"<>\n]*+)|(?P<single>'[^'<>\n]*+))\Z"
_IN_TAG = rf"(?:{_BLANK}++{_ATTRIBUTE})*+(?:{_BLANK}*+/?>|{_BLANK}*+{_OPEN_VALUE}|(?<=[\"']){_BLANK}*+(?P<tag>\Z))"
"""Attributes (HTML, 13.1.2.3) up to the end of a tag, or to that of a clause: within a quoted value, or behind one."""

_BEGINS = (
    re.compile(r"\]\([^)\s]*(?:\s\"[^\"\n)]*)?(?P<link>\Z)"),
    re.compile(rf"<[A-Za-z][\w:-]*+(?=[^<>\n]*\Z){_IN_TAG}"),
    re.compile(r"(?:https?|ftp|wss?)://[!-;=?-~]*(?P<address>\Z)", re.IGNORECASE),
)
"""The group at a clause's end names what it was cut in."""
_GOES_ON: dict[Cut, re.Pattern[str]] = {
    "link": re.compile(r"[^)\s]++(?P<on>\Z)|(?:[^)\s]*(?:\s\"[^\"\n)]*\")?|[^\"\n)]*\")\)"),
    "tag": re.compile(rf"(?:{_BLANK}*+{_ATTRIBUTE})?+{_IN_TAG}"),
    "double": re.compile(rf"[^\"<>\n]*+(?:(?P<on>\Z)|\"{_IN_TAG})"),
    "single": re.compile(rf"[^'<>\n]*+(?:(?P<on>\Z)|'{_IN_TAG})"),
    "address": re.compile(r"[!-;=?-~]++(?P<on>\Z)?+"),
}
"""What stands at the beginning of the next clause: with no group to its end, else it is cut in that as well."""
_CUTS: tuple[Cut, ...] = ("", *_GOES_ON)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a text's markup a clause begins.

    `fence`: marks that opened the block of code that it is in, "" = none. `line`: at the beginning of a line. `since`:
    characters of what was cut that are behind it.
    """

    fence: str = ""
    comment: bool = False
    cut: Cut = ""
    line: bool = True
    since: int = 0

    @classmethod
    def of(cls, value: Value) -> Place:
        """From a node's state."""
        match value:
            case {
                "fence": str(fence),
                "comment": bool(comment),
                "cut": str(given),
                "line": bool(line),
                "since": int(since),
            }:
                return cls(fence, comment, _cut(given), line, since)
        raise TypeError(f"state: {value!r} is no place")

    def value(self) -> Value:
        return {
            "fence": self.fence,
            "comment": self.comment,
            "cut": self.cut,
            "line": self.line,
            "since": self.since,
        }


START = Place()
"""Of a text."""


def unsaid(text: str, place: Place) -> tuple[Spans, Place]:
    """What of a clause is not said, and the place behind it."""
    spans: Spans = []
    at = 0
    if place.cut:
        at, place = _continued(text, place)
        spans += [(0, at)] if at else []
        if place.cut:
            return spans, place
    while at < len(text):
        stop, end, place = _next(text, at, place)
        spans += [(stop, end)] if stop < end else []
        at = end
    begins = max(spans[-1][1] if spans else 0, len(text) - _REACH)
    if not place.fence and not place.comment:
        for pattern in _BEGINS:
            if found := pattern.search(text, begins):
                cut = _cut(found.lastgroup)
                spans += [] if cut == "address" else [(found.start(), len(text))]
                return spans, replace(place, cut=cut, since=len(text) - found.start())
    return spans, place


def _cut(name: str | None) -> Cut:
    return next(cut for cut in _CUTS if cut == (name or ""))


def _continued(text: str, place: Place) -> tuple[int, Place]:
    """Characters of a clause that belong to what the one before was cut in, and the place behind them.

    None where it does not go on as such a thing does, or has become too long for one: then it was something else.
    """
    found = _GOES_ON[place.cut].match(text)
    since = place.since + (found.end() if found else 0)
    if not found or (place.cut in {"tag", "double", "single"} and since > _REACH):
        return 0, replace(place, cut="", since=0)
    cut = place.cut if found.lastgroup == "on" else _cut(found.lastgroup)
    return found.end(), replace(place, cut=cut, line=False, since=since if cut else 0)


def _next(text: str, at: int, place: Place) -> tuple[int, int, Place]:
    """The rest of a line, or of a comment: [stop, end) of it is not said; `end` is where to go on."""
    if place.comment:
        ends = text.find(_COMMENT_ENDS, at)
        if ends < 0:
            return at, len(text), place
        return at, ends + len(_COMMENT_ENDS), replace(place, comment=False, line=False)
    end = text.find("\n", at) + 1 or len(text)
    line = text[at:end]
    after = replace(place, line=line.endswith("\n") or (place.line and not line.strip(_INDENT)))
    if place.fence:
        closes = _closed(line, place)
        return (at, at + closes, replace(place, fence="", line=False)) if closes else (at, end, after)
    if opens := _opened(line, place):
        return at + opens.start("marks"), end, replace(after, fence=opens["marks"])
    comment = line.find(_COMMENT)
    while comment >= 0 and line[:comment].count("`") % 2:  # quoted: `<!--`
        comment = line.find(_COMMENT, comment + 1)
    if comment >= 0:
        return at + comment, at + comment + len(_COMMENT), replace(place, comment=True, line=False)
    return end, end, after


def _closed(line: str, place: Place) -> int:
    """Characters of a line up to the end of the marks that close the block of code it is in; 0 = none do.

    Tildes have a line of their own, as they stand in code. Backticks may stand behind the last line of it.
    """
    if place.fence[0] == "~":
        alone = _TILDES_CLOSE.fullmatch(line) if place.line else None
        return alone.end(1) if alone and len(alone[1]) >= len(place.fence) else 0
    return next((each.end() for each in _CLOSES.finditer(line) if len(each[1]) >= len(place.fence)), 0)


def _opened(line: str, place: Place) -> re.Match[str] | None:
    """Marks that open a block of code; behind them may stand its language.

    As in CommonMark 4.5, and wherever language models put them besides: at the end of a line that begins with text.
    Tildes need the language: alone they are a ruler. A line is at its end where it breaks or the text does; a clause
    that ends in a blank goes on.
    """
    if place.line and (tildes := _TILDES.fullmatch(line)):
        return tildes
    marks = list(_MARKS.finditer(line))
    if len(marks) % 2 == 0:  # each closes what the one before has quoted
        return None
    begins, behind = place.line and not line[: marks[-1].start()].strip(_INDENT), line[marks[-1].end() :]
    fits = "`" not in behind if begins else _LANGUAGE.fullmatch(behind)
    return marks[-1] if fits else None
