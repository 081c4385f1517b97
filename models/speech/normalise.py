"""Written text → speakable text, with a map back (pure).

Marks of markdown and emoji are dropped, links keep their label, addresses are spelled, dashes become pauses, a few
English abbreviations become words. Numbers are left to the phonemizer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Speak = Callable[[re.Match[str]], str]

_ENGLISH = {
    "mr": "Mister", "mrs": "Missus", "ms": "Miz", "dr": "Doctor", "prof": "Professor", "st": "Saint", "mt": "Mount",
    "vs": "versus", "etc": "et cetera", "e.g": "for example", "i.e": "that is", "approx": "approximately",
    "jr": "Junior", "sr": "Senior", "gov": "Governor", "gen": "General", "sen": "Senator", "dept": "department",
}  # fmt: skip
_EMOJI = (
    "[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u2190-\u21ff\u2300-\u23ff\u3297\u3299"
    "\u20e3\ufe0e\ufe0f\u200d\U000e0020-\U000e007f]+"
)


@dataclass(frozen=True, slots=True)
class Spoken:
    """`text` to be spoken; character i of it comes from characters [starts[i], ends[i]) of the written text."""

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def written(self, start: int, end: int) -> tuple[int, int]:
        """The written span of the spoken span [start, end), which is not empty."""
        return self.starts[start], self.ends[end - 1]


@dataclass(frozen=True, slots=True)
class Rule:
    pattern: str  # without named groups of its own
    speak: Speak


def _nothing(_: re.Match[str]) -> str:
    return ""


def _space(_: re.Match[str]) -> str:
    return " "


def _pause(_: re.Match[str]) -> str:
    return ", "


def _email(match: re.Match[str]) -> str:
    return _spelled(match[0].replace("@", " at "))


def _url(match: re.Match[str]) -> str:
    shown = re.sub(r"^(?:https?://)?(?:www\.)?", "", match[0], flags=re.IGNORECASE)
    host, _, path = shown.partition("/")
    path = re.split(r"[?#]", path)[0].strip("/")
    return _spelled(host + ("".join(" slash " + p for p in path.split("/")) if path else ""))


def _spelled(address: str) -> str:
    for mark, word in ((".", " dot "), ("-", " dash "), ("_", " underscore "), (":", " colon "), ("+", " plus ")):
        address = address.replace(mark, word)
    return " ".join(re.sub(r"[^\w\s]", " ", address).split())


def _abbreviation(match: re.Match[str]) -> str:
    ends = not match.string[match.end() :].strip()  # the dot ends the sentence, too
    return _ENGLISH[match[0].rstrip(".").lower()] + ("." if ends else "")


_TOP = "com|org|net|edu|gov|io|ai|dev|app|info|de|fr|uk|eu|ch|at|us|co"
_EVERYWHERE: tuple[Rule, ...] = (
    Rule(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}", _email),
    Rule(r"!?\[([^\]\n]*)\]\([^)\s]*\)", _space),  # replaced by its label in `normalise`
    Rule(r"https?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]", _url),
    Rule(rf"(?<![\w@.])(?:www\.)?(?:[A-Za-z0-9-]+\.)+(?:{_TOP})(?![\w.-]\w)(?:/[\w./-]*\w)?", _url),
    Rule(r"```\w*|`", _nothing),
    Rule(r"(?m:^[ \t]*(?:#{1,6}|>+|[-*+•])[ \t]+)", _space),
    Rule(r"(?m:^[ \t]*(?:[-*_][ \t]*){3,}$)", _space),
    Rule(r"\*+|~~|(?<!\w)_+|_+(?!\w)", _nothing),
    Rule(r"[ \t]*—[ \t]*|[ \t]+–[ \t]+|[ \t]+-{1,2}[ \t]+", _pause),
    Rule(r"\|", _space),
    Rule(_EMOJI, _space),
)
_WORDS = "|".join(sorted((re.escape(w) for w in _ENGLISH), key=len, reverse=True))
_IN_ENGLISH: tuple[Rule, ...] = (Rule(rf"(?<![\w.])(?i:{_WORDS})\.(?=\s+\w|,|;|\)|$)", _abbreviation),)


def _compiled(rules: Sequence[Rule]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<r{i}>{rule.pattern})" for i, rule in enumerate(rules)))


_RULES = {True: _EVERYWHERE + _IN_ENGLISH, False: _EVERYWHERE}
_PATTERNS = {english: _compiled(rules) for english, rules in _RULES.items()}
_LABEL = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*\)")


def normalise(text: str, language: str = "en-us") -> Spoken:
    """Speakable form of `text`; rules that make words apply to their own language only."""
    english = language.startswith("en")
    spoken: list[str] = []
    starts: list[int] = []
    ends: list[int] = []

    def put(piece: str, start: int, end: int, *, verbatim: bool) -> None:
        spoken.append(piece)
        for k in range(len(piece)):
            starts.append(start + k if verbatim else start)
            ends.append(start + k + 1 if verbatim else end)

    at = 0
    for match in _PATTERNS[english].finditer(text):
        put(text[at : match.start()], at, match.start(), verbatim=True)
        at = match.end()
        if label := _LABEL.fullmatch(match[0]):
            inner = normalise(label[1], language)
            offset = match.start() + label.start(1)
            spoken.append(inner.text)
            starts += [offset + s for s in inner.starts]
            ends += [offset + e for e in inner.ends]
            continue
        rule = _RULES[english][int(str(match.lastgroup)[1:])]
        put(rule.speak(match), match.start(), match.end(), verbatim=False)
    put(text[at:], at, len(text), verbatim=True)
    return Spoken("".join(spoken), tuple(starts), tuple(ends))
