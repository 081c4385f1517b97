"""Dates and times of day (pure)."""

from __future__ import annotations

import re

from models.speech.english.numbers import cardinal, digits, ordinal, plural, year
from models.speech.english.rule import Rule, rule

MONTHS = (
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)
_SHORT = {"Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4, "Jun": 6, "Jul": 7, "Aug": 8, "Sep": 9, "Sept": 9, "Oct": 10}
_SHORT |= {"Nov": 11, "Dec": 12}
_NAMES = {**{name: at for at, name in enumerate(MONTHS, 1)}, **_SHORT}
_MONTH = r"(" + "|".join(MONTHS) + r"|(?:" + "|".join(sorted(_SHORT, key=len, reverse=True)) + r")\b\.?)"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"([12]\d{3})(?![\d:]|[.,]\d)"
_ANY_CASE = re.IGNORECASE | re.ASCII
_NOT_MORE = r"(?![\d:/%]|[.,]\d|st\b|nd\b|rd\b|th\b)"
_HALF = r"\s?([ap])(?:\.\s?m\.|m\b\.?)"
_WEEKDAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday", "Thur": "Thursday",
    "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip


def date(day: int, month: int, of: str | None = None) -> str | None:
    """ "January fifth, twenty twenty-four"; None for a day that is in no month."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return f"{MONTHS[month - 1]} {ordinal(day)}" + (f", {year(int(of))}" if of else "")


def _iso(match: re.Match[str]) -> str | None:
    said = date(int(match[3]), int(match[2]), match[1])
    return said and said + (", " if match[4] else "")


def _slashes(match: re.Match[str]) -> str | None:
    first, second = int(match[1]), int(match[2])
    month, day = (first, second) if first <= 12 else (second, first)
    return date(day, month, match[3])


def _short_year(match: re.Match[str]) -> str | None:
    century = 2000 if int(match[3]) < 70 else 1900
    first, second = int(match[1]), int(match[2])
    month, day = (first, second) if first <= 12 else (second, first)
    return date(day, month, str(century + int(match[3])))


def _dots(match: re.Match[str]) -> str | None:
    return date(int(match[1]), int(match[2]), match[3])


def _month_first(match: re.Match[str]) -> str | None:
    return date(int(match[2]), _NAMES[match[1].rstrip(".")], match[3])


def _day_first(match: re.Match[str]) -> str | None:
    day, month = int(match[2]), _NAMES[match[3].rstrip(".")]
    if date(day, month) is None:
        return None
    return f"the {ordinal(day)} of {MONTHS[month - 1]}" + (f", {year(int(match[4]))}" if match[4] else "")


def _month_of(match: re.Match[str]) -> str:
    return f"{MONTHS[_NAMES[match[1].rstrip('.')] - 1]} {year(int(match[2]))}"


def _clock(match: re.Match[str]) -> str:
    hour, minute, second, half = int(match[1]), int(match[2]), match[3], match[4]
    said = cardinal(hour)
    if minute or second:
        said += f" {'oh ' if minute < 10 else ''}{cardinal(minute)}"
    elif not half:
        said += " o'clock" if 1 <= hour <= 12 else " hundred"
    if second:
        said += f" {'oh ' if int(second) < 10 else ''}{cardinal(int(second))}"
    return said + _of_day(half)


def _hour(match: re.Match[str]) -> str | None:
    hour = int(match[1])
    return cardinal(hour) + _of_day(match[2]) if 1 <= hour <= 12 else None


def _of_day(half: str | None) -> str:
    return f" {half.lower()}.m." if half else ""


def weekday(match: re.Match[str]) -> str:
    """The day that an abbreviation stands for."""
    return _WEEKDAYS[match[1]]


def _decade(match: re.Match[str]) -> str:
    return plural(year(int(match[1])))


def _short_decade(match: re.Match[str]) -> str:
    return plural(cardinal(int(match[1])))


RULES: tuple[Rule, ...] = (
    rule(r"\b(Sat|Sun)\b\.?(?=,?\s\d)", weekday),
    rule(r"(?<![\w-])([12]\d{3})-(\d{2})-(\d{2})(?:(T)(?=\d)|(?![\w-]))", _iso),
    rule(r"(?<![\w/.])(\d{1,2})/(\d{1,2})/([12]\d{3})(?![\w/])", _slashes),
    rule(r"(?<![\w/.])(\d{1,2})/(\d{1,2})/(\d\d)(?![\w/])", _short_year),
    rule(r"(?<![\w/.])(\d{1,2})\.(\d{1,2})\.([12]\d{3})(?![\w/])", _dots),
    rule(rf"\b{_MONTH}\s{_DAY}(?:(?:,\s|\s|,){_YEAR})?{_NOT_MORE}", _month_first),
    rule(rf"(?<![\w.,/:-])(the\s)?{_DAY}\s(?:of\s)?{_MONTH}(?:,?\s{_YEAR})?(?!\w)", _day_first),
    rule(rf"\b{_MONTH},?\s{_YEAR}", _month_of),
    rule(rf"(?<![\d:.,])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:]|\.\d)(?:{_HALF})?", _clock, flags=_ANY_CASE),
    rule(rf"(?<![\w:.,])(\d{{1,2}}){_HALF}", _hour, flags=_ANY_CASE),
    rule(r"(?<![\w.,])([12]\d{2}0)'?s\b", _decade),
    rule(r"(?:(?<!\w)['’]|(?<![\w.,$€£]))([2-9]0)'?s\b", _short_decade),
    rule(r"(?:(?<!\w)['’])(\d\d)(?!\w)", lambda match: ("oh " if match[1][0] == "0" else "") + _two(match[1])),
)  # fmt: skip


def _two(text: str) -> str:
    return digits(text[1]) if text[0] == "0" else cardinal(int(text))
