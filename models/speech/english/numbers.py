"""Numbers as English words (pure). Digits are ASCII."""

from __future__ import annotations

LONGEST = 15
"""Digits of a number that is read as one; longer ones are read digit by digit."""
_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
_IRREGULAR = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def cardinal(number: int) -> str:
    """0 … 10¹⁵ - 1: "forty-two", "one hundred five"."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens] + (f"-{_ONES[ones]}" if ones else "")
    size, name = next(scale for scale in _SCALES if scale[0] <= number)
    many, rest = divmod(number, size)
    return f"{cardinal(many)} {name}" + (f" {cardinal(rest)}" if rest else "")


def ordinal(number: int) -> str:
    """ "forty-second"."""
    words = cardinal(number)
    head, last = words[: (at := max(words.rfind(" "), words.rfind("-")) + 1)], words[at:]
    if last in _IRREGULAR:
        return head + _IRREGULAR[last]
    return head + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def year(number: int) -> str:
    """1000 … 9999 in pairs: "nineteen oh five", "two thousand nine", "twenty twenty-four"."""
    century, rest = divmod(number, 100)
    if century % 10 == 0 and rest < 10:
        return cardinal(number)
    if not rest:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def plural(words: str) -> str:
    """Of a number: "nineties", "thousands", "sixes"."""
    if words.endswith("y"):
        return words[:-1] + "ies"
    return words + ("es" if words.endswith("x") else "s")


def digits(text: str) -> str:
    """Digit by digit."""
    return " ".join(_ONES[int(each)] for each in text)


def whole(text: str) -> str:
    """A run of digits, with thousands' commas or without."""
    plain = text.replace(",", "")
    if len(plain) > LONGEST or (len(plain) > 1 and plain[0] == "0"):
        return digits(plain)
    return cardinal(int(plain))


def number(text: str) -> str:
    """Digits with thousands' commas and a decimal point: "three point one four", "point five"."""
    before, point, behind = text.partition(".")
    words = whole(before) if before else ""
    return f"{words} point {digits(behind)}".strip() if point and behind else words


def is_one(text: str) -> bool:
    """Whether what is counted stands in the singular."""
    return text == "1"


def fraction(above: int, below: int) -> str:
    """ "one half", "three quarters", "two fifths"; of unusual ones "five over seven hundred"."""
    if not 2 <= below <= 100 or above >= below:
        return f"{cardinal(above)} over {cardinal(below)}"
    part = {2: "half", 4: "quarter"}.get(below) or ordinal(below)
    if above == 1:
        return f"one {part}"
    return f"{cardinal(above)} {'halves' if below == 2 else part + 's'}"


def of_roman(text: str) -> int | None:
    """The value of a Roman numeral in its one right spelling, else None."""
    values = [_ROMAN[each] for each in text]
    total = sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True))
    return total if roman(total) == text else None


def roman(number: int) -> str:
    """Above 0."""
    signs = zip((1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1), _SIGNS, strict=True)
    spelled = ""
    for value, sign in signs:
        many, number = divmod(number, value)
        spelled += sign * many
    return spelled


_SIGNS = "M CM D CD C XC L XL X IX V IV I".split()  # noqa: SIM905
