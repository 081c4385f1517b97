"""Numbers that name rather than count: telephones, versions, cards; and those that do (pure)."""

from __future__ import annotations

import re

from models.speech.english.numbers import cardinal, digits, fraction, number, ordinal, whole, year
from models.speech.english.rule import ALONE, NUMBER, Rule, rule

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_EMERGENCY = r"\b([Cc]all(?:ed|ing)?|[Dd]ial(?:l?ed|l?ing)?)\s(\d{3})(?![\w-]|[.,]\d)"


def _telephone(match: re.Match[str]) -> str:
    groups = re.findall(r"\d+", match[0])
    said = ["eight hundred" if group == "800" else digits(group) for group in groups]
    return ("plus " if match[0].startswith("+") else "") + ", ".join(said)


def _version(match: re.Match[str]) -> str:
    return "version " + " point ".join(whole(part) for part in match[1].split("."))


def _dotted(match: re.Match[str]) -> str:
    parts = match[0].split(".")
    return (" dot " if len(parts) == 4 else " point ").join(whole(part) for part in parts)


def _emergency(match: re.Match[str]) -> str:
    return f"{match[1]} {digits(match[2])}"


def _mixed(match: re.Match[str]) -> str | None:
    count, above, below = match[1], int(match[2]), int(match[3])
    if not 2 <= below <= 100 or not 0 < above < below:
        return None
    part = fraction(above, below)
    return f"{whole(count)} and {'a' + part[3:] if above == 1 else part}"


def _fraction(match: re.Match[str]) -> str:
    above, below = int(match[1]), int(match[2])
    match (above, below):
        case (24, 7):
            return "twenty-four seven"
        case (9, 11):
            return "nine eleven"
        case _ if above == below:
            return f"{cardinal(above)} {'' if above == 50 else 'out of '}{cardinal(below)}"
        case _:
            return fraction(above, below)


def _power(match: re.Match[str]) -> str:
    exponent = match[1].translate(_SUPERSCRIPTS)
    if exponent in ("2", "3"):
        return "squared" if exponent == "2" else "cubed"
    minus = "minus " if exponent.startswith("-") else ""
    return f"to the power of {minus}{whole(exponent.strip('-') or '0')}"


def _scientific(match: re.Match[str]) -> str:
    minus = "minus " if match[2] == "-" else ""
    return f"{number(match[1])} times ten to the power of {minus}{whole(match[3])}"


def _nth(match: re.Match[str]) -> str:
    plain = match[1].replace(",", "")
    return ordinal(int(plain)) if len(plain) <= 15 else digits(plain)


def _plain(match: re.Match[str]) -> str:
    text = match[0]
    if len(text) == 4 and text.isdigit() and 1010 <= int(text) < 2100:
        return year(int(text))
    return number(text)


_END = r"(?![\w-]|[.,]\d)"
CODES: tuple[Rule, ...] = (
    rule(rf"(?<![\w.,-])\d{{4}}(?:[ -]\d{{4}}){{3}}{_END}", _telephone),
    rule(rf"(?<![\w.,$€£-])(?:\+?\d{{1,3}}[ .-])?(?:\(\d{{3}}\) ?|\d{{3}}[ .-])\d{{3}}[ .-]\d{{4}}{_END}", _telephone),
    rule(rf"(?<!\w)\+\d{{1,3}}(?:[ -]\(?\d{{2,8}}\)?){{1,5}}{_END}", _telephone),
    rule(rf"(?<!\w)\+\d{{8,15}}{_END}", _telephone),
    rule(rf"(?<![\w.,$€£–-])\d{{3}}-\d{{4}}{_END}", _telephone),
    rule(r"(?<![\w.,-])\d{3}-\d{2}-\d{4}(?![\w-])", _telephone),
    rule(_EMERGENCY, _emergency),
)
BEFORE_UNITS: tuple[Rule, ...] = (
    rule(r"(?<![\w.])(\d++(?:\.\d++)?)[eE]([+-]?)(\d{1,4})(?!\w)", _scientific),
    rule(r"(?<!\w)[vV]\.?\s?(\d{1,6}(?:\.\d{1,6})*)(?!\w)", _version),
    rule(r"(?<![\w.,])\d{1,6}(?:\.\d{1,6}){2,}(?![\w])", _dotted),
    rule(rf"{ALONE}(\d++)[ -](\d{{1,3}})[/⁄](\d{{1,3}})(?![\w/])", _mixed),
    rule(r"(?<![\w.,/])(\d{1,6})[/⁄](\d{1,6})(?![\w/])", _fraction),
    rule(rf"(?<=\d)\s?[-–—]\s?(?=[$€£¥]?{NUMBER})", " to "),
    rule(r"(?<=\d)\s?[x×]\s?(?=\d)", " by "),
)
SIGNS: tuple[Rule, ...] = (rule(r"(?<![\w)])[-−–](?=[.\d$€£¥])", "minus "),)
COUNTS: tuple[Rule, ...] = (
    rule(r"(?<![A-Za-z]{2})(?<=[\w)])([⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4})", _power, flags=re.UNICODE),
    rule(r"(?<=[\w)])\^(-?\d{1,4})", _power),
    rule(r"(?<!\d)(\d{1,3}(?:,\d{3})++|\d++)(?:st|nd|rd|th)\b", _nth),
    rule(rf"{NUMBER}", _plain),
)
