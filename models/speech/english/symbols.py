"""Signs that are said: operators, shares, tags (pure)."""

from __future__ import annotations

from models.speech.english.rule import Rule, rule

_NAMES = {
    "&": "and", "+": "plus", "=": "equals", "%": "percent", "‰": "per mille", "×": "times", "÷": "divided by",
    "±": "plus or minus", "≈": "about", "≠": "not equal to", "≤": "at most", "≥": "at least", "√": "square root of",
    "∞": "infinity", "°": "degrees", "@": "at", "$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee",
    "₿": "bitcoin", "§": "section", "\\": "backslash", "∑": "sum", "∆": "delta", "∂": "partial", "∫": "integral",
    "∈": "in", "∅": "empty set", "¢": "cent",
}  # fmt: skip
_SIGNS = "".join(sorted(_NAMES)).replace("\\", "\\\\")

SYMBOLS: tuple[Rule, ...] = (
    rule(r"\b([Cc])\+\+", lambda match: f"{match[1]} plus plus"),
    rule(r"\b([CFG])#(?!\w)", lambda match: f"{match[1]} sharp"),
    rule(r"#(?=[A-Za-z])", "hashtag "),
    rule(r"<=|=<", " at most "),
    rule(r">=", " at least "),
    rule(r"!=", " not equal to "),
    rule(r"[-=]+>|<[-=]+", ", "),
    rule(r"={2,}", " equals "),
    rule(r"(?<=[\w)])\s?<\s?(?=[\w(])", " less than "),
    rule(r"(?<=[\w)])\s?>\s?(?=[\w(])", " greater than "),
    rule(r"(?<=[A-Za-z])\s?/\s?(?=[A-Za-z])", " "),
    rule(r"/", " slash "),
    rule(rf"[{_SIGNS}]", lambda match: f" {_NAMES[match[0]]} "),
)
"""Before numbers are words."""
BETWEEN_NUMBERS: tuple[Rule, ...] = (
    rule(r"(?<=\d)\s?\*\s?(?=\d)", " times "),
    rule(r"(?<!\S)~\s?(?=[\d$€£])", "about "),
    rule(r"(?<=\d):(?=\d)", " to "),
    rule(r"(?<=[A-Za-z])-(?=\d)|(?<=\d)-(?=[A-Za-z])", " "),
)
