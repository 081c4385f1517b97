"""Abbreviations and Roman numerals (pure)."""

from __future__ import annotations

import re

from models.speech.english.moments import MONTHS, weekday
from models.speech.english.numbers import cardinal, of_roman, ordinal
from models.speech.english.rule import Rule, closing, rule

_TITLES = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miz", "Dr": "Doctor", "Prof": "Professor", "Rev": "Reverend",
    "Gov": "Governor", "Gen": "General", "Sen": "Senator", "Rep": "Representative", "Capt": "Captain",
    "Lt": "Lieutenant", "Sgt": "Sergeant", "Col": "Colonel", "Maj": "Major", "Pres": "President", "Hon": "Honorable",
    "St": "Saint", "Mt": "Mount", "Ft": "Fort",
}  # fmt: skip
_STREETS = {
    "St": "Street",
    "Dr": "Drive",
    "Ave": "Avenue",
    "Blvd": "Boulevard",
    "Rd": "Road",
    "Ln": "Lane",
    "Hwy": "Highway",
}
_ANYWHERE = {
    "vs": "versus", "etc": "et cetera", "e.g": "for example", "i.e": "that is", "approx": "approximately",
    "jr": "Junior", "sr": "Senior", "dept": "department", "inc": "Incorporated", "corp": "Corporation",
    "ltd": "Limited", "ave": "Avenue", "blvd": "Boulevard", "rd": "Road", "cf": "compare", "ph.d": "P H D",
    "a.k.a": "also known as", "min": "minimum", "max": "maximum", "est": "established", "bros": "Brothers",
    "fig": "figure", "vol": "volume", "ed": "edition", "p.s": "P S",
}  # fmt: skip
_BEFORE_NUMBERS = {
    "No": "number", "Nos": "numbers", "Vol": "volume", "Fig": "figure", "Ch": "chapter", "Sec": "section",
    "p": "page", "pp": "pages", "ca": "circa", "Art": "article", "Eq": "equation",
}  # fmt: skip
_SHORT_MONTHS = {name[:3]: name for name in MONTHS if name != "May"} | {"Sept": "September"}
_COUNTED = (
    "Chapter|Part|Act|Volume|Book|Section|Type|Phase|War|Bowl|Class|Level|Stage|Article|Appendix|Scene|Title|Grade|"
    "Rocky|Fantasy|Mark|Round|Unit|Tier|Schedule"
)
_REIGNED = (
    "Henry|Louis|Elizabeth|George|Edward|Charles|James|William|Richard|Paul|Benedict|Pius|Leo|Napoleon|Philip|Felipe|"
    "Frederick|Wilhelm|Nicholas|Alexander|Catherine|Ramses|Ramesses|Ptolemy|Francis|Gregory|Innocent|Urban|Clement|"
    "Christian|Gustav|Harald|Haakon|Margrethe|Juan Carlos|Robert|Malcolm|Mary|Peter|Ivan|Mehmed|Murad|Otto|Ludwig"
)
_NOT_CERTAIN = frozenset({"XX", "XXX", "IV", "VI", "XI"})


def _title(match: re.Match[str]) -> str:
    return _TITLES[match[1]]


def _street(match: re.Match[str]) -> str:
    return f"{match[1]}{_STREETS[match[2]]}{closing(match)}"


def _anywhere(match: re.Match[str]) -> str:
    return _ANYWHERE[match[1].lower()] + closing(match)


def _before_number(match: re.Match[str]) -> str:
    word = _BEFORE_NUMBERS.get(match[1]) or _BEFORE_NUMBERS[match[1].capitalize()]
    return word.capitalize() if match[1][0].isupper() and match[1] not in ("No", "Nos") else word


def _month(match: re.Match[str]) -> str:
    return _SHORT_MONTHS[match[1]] + closing(match)


def _reigned(match: re.Match[str]) -> str | None:
    value = of_roman(match[2])
    return None if value is None else f"{match[1]} the {ordinal(value)}"


def _counted(match: re.Match[str]) -> str | None:
    value = of_roman(match[2])
    return None if value is None else f"{match[1]} {cardinal(value)}"


def _numeral(match: re.Match[str]) -> str | None:
    value = None if match[2] in _NOT_CERTAIN else of_roman(match[2])
    return None if value is None else f"{match[1]} {cardinal(value)}"


def _any(words: dict[str, str]) -> str:
    return "|".join(sorted((re.escape(word) for word in words), key=len, reverse=True))


BEFORE_NUMBERS: tuple[Rule, ...] = (
    rule(
        rf"(?<![\w.])({_any(_BEFORE_NUMBERS)}|vol|fig|ch|sec|art|eq)\.\s{{0,3}}(?=\d)",
        _before_number,
    ),
    rule(r"(?<![\w&])#(?=\d)", "number "),
    rule(r"§§?\s?(?=\d)", "section "),
)
ABBREVIATIONS: tuple[Rule, ...] = (
    rule(r"\b(Mon|Tues?|Wed|Thu(?:rs?)?|Fri)\b\.", weekday),
    rule(rf"(?<=[a-z])(\s)({_any(_STREETS)})\.(?!\s[A-Z])", _street),
    rule(rf"(?<![\w.])({_any(_TITLES)})\.(?=\s+\w)", _title, flags=re.UNICODE),
    rule(rf"(?<![\w.])({_any(_ANYWHERE)})\.(?=\s|[,;:)!?]|$)", _anywhere, flags=re.IGNORECASE | re.ASCII),
    rule(rf"(?<![\w.])({_any(_SHORT_MONTHS)})\.(?=\s|[,;:)!?]|$)", _month),
)
WITH: tuple[Rule, ...] = (
    rule(r"(?<![\w/])w/o(?![\w/])", "without"),
    rule(r"(?<![\w/])w/(?=\s?\w)", "with "),
)
ROMAN: tuple[Rule, ...] = (
    rule(rf"\b({_REIGNED})\s([IVX]+)(?![\w'’.-]\w|\w)", _reigned),
    rule(rf"\b({_COUNTED})\s([IVXLC]+)(?![\w'’.-]\w|\w)", _counted),
    rule(r"\b([A-Z][a-z]+)\s([IVX]{2,})(?![\w'’.-]\w|\w)", _numeral),
)
