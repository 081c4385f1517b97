"""Characters of any script → those that can be said (pure).

An English voice says Latin letters, and the scripts whose words espeak-ng knows in their own language. Greek and
Cyrillic words are said as they are transliterated, a Greek letter alone by its name. Other scripts are skipped.
"""

from __future__ import annotations

import re
import unicodedata

from models.speech.traced import Traced

_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"
_SIGNS = frozenset(_RAISED + "$€£¥₹₩₽₺₴₦₱₪₫₿¢§°×÷±≈≠≤≥√∞‰−⁄–—…∑∆∂∫∈∅•")
_SAME = {
    **dict.fromkeys("‘’‚‛ʼʹʻ′`´＇", "'"), **dict.fromkeys("“”„‟«»‹›「」『』《》〈〉″", '"'),
    **dict.fromkeys("‐‑‒﹘", "-"), **dict.fromkeys("―⸺", "—"), "。": ". ", "｡": ". ", "、": ", ", "､": ", ",
    "，": ", ", "；": "; ", "：": ": ", "！": "! ", "？": "? ", "¿": "", "¡": "", "№": "No. ", "™": "", "®": "",
    "©": "", "℠": "", "‼": "!", "⁇": "?", "⁉": "?", "؟": "?", "،": ", ", "؛": "; ", "।": ". ", "·": " ", "ß": "ß",
    "∕": "/", "∙": " ", "←": " ", "→": ", ", "⇒": ", ", "↔": ", ", "`": "`",
}  # fmt: skip
_CLUSTER = re.compile(r"[^\x00-\x7f][\u0300-\u036f]*|[A-Za-z][\u0300-\u036f]+|[\x00-\x08\x0b-\x1f\x7f]")
_FRACTION = re.compile("[¼-¾⅐-⅞↉]")
_SPOKEN = re.compile("[가-힣\u0900-\u0963\u0970-\u097f\u0531-\u0556\u0561-\u0587\u10d0-\u10ff]")
_GREEK = "[\u0370-\u03ff\u1f00-\u1fff]"
_LONE_GREEK = re.compile(rf"(?<![^\W\d_]){_GREEK}(?![^\W\d_])")
_GREEK_NAMES = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "ο": "omicron", "π": "pi", "ρ": "rho",
    "σ": "sigma", "ς": "sigma", "τ": "tau", "υ": "upsilon", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega",
}  # fmt: skip
_LATIN_OF = {
    **dict(zip("αβγδεζηικλμνξοπρσςτυφω", "avgdeziiklmnxoprsstyfo", strict=True)), "θ": "th", "χ": "ch", "ψ": "ps",
    **dict(zip("абвгдезийклмнопрстуфыэіїєґјћђѓќ", "abvgdeziyklmnoprstufyeiieghcdgk", strict=True)),
    "ё": "yo", "ж": "zh", "х": "kh", "ц": "ts", "ч": "ch", "ш": "sh", "щ": "shch", "ъ": "", "ь": "", "ю": "yu",
    "я": "ya", "љ": "ly", "њ": "ny", "џ": "dzh", "ў": "u",
}  # fmt: skip
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_PLAIN = {
    "ð": "ð",
    "þ": "þ",
    "æ": "æ",
    "ø": "ø",
    "œ": "oe",
    "ł": "ł",
    "ı": "i",
    "ŋ": "ng",
    "ſ": "s",
    "đ": "d",
    "ħ": "h",
}


def unified(text: Traced) -> Traced:
    """One form of a character where Unicode has several: letters of the plain alphabet, digits, quotes, spaces."""
    return text.worded(_FRACTION, lambda match: unicodedata.normalize("NFKC", match[0])).spelled(_CLUSTER, _unified)


def _unified(match: re.Match[str]) -> str:
    cluster = match[0]
    if cluster[0] in _SAME or cluster[0] in _SIGNS:
        return _SAME.get(cluster[0], cluster[0])
    return "".join(map(_same, unicodedata.normalize("NFKC", cluster)))


def _same(character: str) -> str:
    if character in _SAME or character in _SIGNS:
        return _SAME.get(character, character)
    kind = unicodedata.category(character)
    if character.isascii() and kind != "Cc":
        return character
    match kind[0]:
        case "N":
            digit = unicodedata.decimal(character, None)
            return " " if digit is None else str(digit)
        case "L" | "M":
            return character
        case _:
            return "" if kind in ("Cf", "Sk") else " "


def lettered(text: Traced) -> Traced:
    """What is not ASCII by now, for an English voice; signs that have no word are left out."""
    return text.worded(_LONE_GREEK, _name).spelled(_NOT_ASCII, _letter)


def _name(match: re.Match[str]) -> str | None:
    return _GREEK_NAMES.get(_bare(match[0].lower()))


def _letter(match: re.Match[str]) -> str:
    character = match[0]
    if ("\u00c0" <= character <= "\u017f" and character not in "×÷") or _SPOKEN.match(character) or character in "…–—":
        return character
    bare = _bare(character)
    said = _LATIN_OF.get(bare.lower()) or _LATIN_OF.get(character.lower())
    if said is not None:
        return said.capitalize() if character.isupper() else said
    plain = _PLAIN.get(bare.lower(), bare)
    if plain.isascii() and plain.isalpha():
        return plain
    return "" if unicodedata.category(character).startswith("M") else " "


def _bare(character: str) -> str:
    """A letter without its marks."""
    return unicodedata.normalize("NFD", character)[0]
