"""Money, units, shares, temperatures (pure)."""

from __future__ import annotations

import re

from models.speech.english.numbers import cardinal, is_one, number
from models.speech.english.rule import ALONE, NUMBER, Rule, rule

_CURRENCIES = {  # singular, plural, a hundredth of it in both
    "$": ("dollar", "dollars", "cent", "cents"), "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"), "¥": ("yen", "yen", "", ""), "₹": ("rupee", "rupees", "paisa", "paise"),
    "₩": ("won", "won", "", ""), "₽": ("ruble", "rubles", "kopeck", "kopecks"), "₺": ("lira", "lira", "", ""),
    "₴": ("hryvnia", "hryvnias", "", ""), "₦": ("naira", "naira", "", ""), "₱": ("peso", "pesos", "", ""),
    "₪": ("shekel", "shekels", "", ""), "₫": ("dong", "dong", "", ""), "₿": ("bitcoin", "bitcoins", "", ""),
}  # fmt: skip
_CODES = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹"}
_SIGNS = "".join(_CURRENCIES)
_MAGNITUDES = {"k": "thousand", "K": "thousand", "m": "million", "M": "million", "mn": "million", "b": "billion"}
_MAGNITUDES |= {"B": "billion", "bn": "billion", "T": "trillion", "tn": "trillion"}
_MAGNITUDE = r"(?:\s?(hundred|thousand|million|billion|trillion|mn|bn|tn|[kKmMbBT])(?![\w]))?"
_PER = r"(?:\s?/\s?([A-Za-z]+)(?!\w))?"
_UNITS = {  # singular, plural
    "km": "kilometer", "cm": "centimeter", "mm": "millimeter", "nm": "nanometer", "μm": "micrometer", "m": "meter",
    "mi": "mile", "yd": "yard", "kg": "kilogram", "mg": "milligram", "μg": "microgram", "g": "gram", "oz": "ounce",
    "lb": "pound", "lbs": "pound", "l": "liter", "L": "liter", "ml": "milliliter", "mL": "milliliter", "gal": "gallon",
    "kW": "kilowatt", "MW": "megawatt", "GW": "gigawatt", "W": "watt", "kWh": "kilowatt hour", "V": "volt",
    "mV": "millivolt", "mA": "milliamp", "mAh": "milliamp hour", "kHz": "kilohertz", "MHz": "megahertz",
    "GHz": "gigahertz", "Hz": "hertz", "KB": "kilobyte", "kB": "kilobyte", "MB": "megabyte", "GB": "gigabyte",
    "TB": "terabyte", "PB": "petabyte", "kbps": "kilobit per second", "Mbps": "megabit per second",
    "Gbps": "gigabit per second", "ns": "nanosecond", "μs": "microsecond", "ms": "millisecond", "s": "second",
    "sec": "second", "secs": "second", "min": "minute", "mins": "minute", "h": "hour", "hr": "hour", "hrs": "hour",
    "yr": "year", "yrs": "year", "km/h": "kilometer per hour", "kph": "kilometer per hour", "kmh": "kilometer per hour",
    "mph": "mile per hour", "m/s": "meter per second", "fps": "frame per second", "rpm": "revolution per minute",
    "dB": "decibel", "px": "pixel", "kcal": "kilocalorie", "cal": "calorie", "kJ": "kilojoule", "J": "joule",
    "Pa": "pascal", "kPa": "kilopascal", "hPa": "hectopascal", "ha": "hectare", "m²": "square meter",
    "km²": "square kilometer", "cm²": "square centimeter", "m³": "cubic meter", "cm³": "cubic centimeter",
    "sq ft": "square foot", "ft²": "square foot", "ft": "foot", "psi": "P S I", "kΩ": "kilohm", "Ω": "ohm",
}  # fmt: skip
_UNCOUNTED = frozenset({"hertz", "kilohertz", "megahertz", "gigahertz", "P S I"})
_UNIT = "|".join(sorted((re.escape(unit) for unit in _UNITS), key=len, reverse=True))
_PERIODS = {"mo": "month", "yr": "year", "hr": "hour", "h": "hour", "min": "minute", "wk": "week", "s": "second"}
_PERIODS |= {
    "sec": "second",
    "kg": "kilogram",
    "lb": "pound",
    "gal": "gallon",
    "d": "day",
    "l": "liter",
    "km": "kilometer",
}
_SCALE = {"C": " Celsius", "F": " Fahrenheit", None: ""}


def several(unit: str) -> str:
    """The plural of a unit's words: "miles per hour", "square feet"."""
    if unit in _UNCOUNTED:
        return unit
    head, per, rest = unit.partition(" per ")
    head = head[: -len("foot")] + "feet" if head.endswith("foot") else head + "s"
    return head + per + rest


def amount(value: str, sign: str, magnitude: str | None = None) -> str:
    """ "five dollars and fifty cents", "one point two million euros"."""
    one, many, cent, cents = _CURRENCIES[sign]
    if magnitude:
        return f"{number(value)} {_MAGNITUDES.get(magnitude, magnitude)} {many}"
    before, _, behind = value.partition(".")
    if cent and len(behind) == 2:
        small = int(behind)
        parts = [f"{cardinal(small)} {cent if small == 1 else cents}"] if small else []
        large = (before or "0").replace(",", "")
        if large.strip("0") or not parts:
            parts.insert(0, f"{number(before or '0')} {one if is_one(large) else many}")
        return " and ".join(parts)
    return f"{number(value)} {one if is_one(value) else many}"


def _per(word: str | None) -> str:
    return f" per {_PERIODS.get(word, word)}" if word else ""


def _money(match: re.Match[str]) -> str:
    return amount(match[2], match[1], match[3]) + _per(match[4])


def _money_range(match: re.Match[str]) -> str:
    return f"{number(match[2])} to {amount(match[3], match[1], match[4])}"


def _money_behind(match: re.Match[str]) -> str:
    return amount(match[1], match[3], match[2]) + _per(match[4])


def _code_before(match: re.Match[str]) -> str:
    return amount(match[2], _CODES[match[1]], match[3])


def _code_behind(match: re.Match[str]) -> str:
    return amount(match[1], _CODES[match[3]], match[2])


def _cents(match: re.Match[str]) -> str:
    return f"{number(match[1])} {'cent' if is_one(match[1]) else 'cents'}"


def _degrees(match: re.Match[str]) -> str:
    return f"{number(match[1])} degree{'' if is_one(match[1]) else 's'}{_SCALE[match[2]]}"


def _height(match: re.Match[str]) -> str:
    feet = f"{number(match[1])} {'foot' if is_one(match[1]) else 'feet'}"
    return feet if match[2] is None else f"{feet} {number(match[2])} {'inch' if is_one(match[2]) else 'inches'}"


def _unit(match: re.Match[str]) -> str:
    unit = _UNITS[match[2]]
    return f"{number(match[1])} {unit if is_one(match[1]) else several(unit)}"


def _large(match: re.Match[str]) -> str:
    return f"{number(match[1])} {_MAGNITUDES[match[2]]}"


_OF_COUNTRY = r"(?:(?<![A-Za-z])(?:US|CA|AU|NZ|HK|A|C)(?=\$))?"
MONEY: tuple[Rule, ...] = (
    rule(
        rf"{_OF_COUNTRY}([{_SIGNS}])({NUMBER})\s?[-–]\s?[{_SIGNS}]?(?=[\d.])({NUMBER}){_MAGNITUDE}(?![\d-])",
        _money_range,
    ),
    rule(rf"{_OF_COUNTRY}([{_SIGNS}])\s?({NUMBER}){_MAGNITUDE}{_PER}", _money),
    rule(rf"{ALONE}({NUMBER}){_MAGNITUDE}\s?([{_SIGNS}])(?![\w]){_PER}", _money_behind),
    rule(rf"\b({'|'.join(_CODES)})\s?({NUMBER}){_MAGNITUDE}", _code_before),
    rule(rf"{ALONE}({NUMBER}){_MAGNITUDE}\s?({'|'.join(_CODES)})\b", _code_behind),
    rule(rf"{ALONE}({NUMBER})\s?¢", _cents),
)
UNITS: tuple[Rule, ...] = (
    rule(rf"({NUMBER})\s?°\s?(?:([CF])\b)?", _degrees),
    rule(r"(?<![\w.,])(\d{1,2})['′](?:\s?(\d{1,2})[\"″])?(?!\w)", _height),
    rule(rf"(?<![A-Za-z])({NUMBER})[\s-]?({_UNIT})(?![\w²³/'’])", _unit, flags=re.UNICODE),
    rule(rf"(?<![A-Za-z])({NUMBER})\s?(k|mn|M|bn|B|tn)(?![\w'’])", _large),
)
