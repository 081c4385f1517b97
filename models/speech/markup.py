"""Marks of markdown and HTML, and addresses, out of a text that is to be said (pure)."""

from __future__ import annotations

import html
import re
from html.entities import html5

from models.speech.traced import Traced


def _at_lines(pattern: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """For a text that begins inside a line, and for one that begins with a line."""
    return re.compile(rf"(?m:(?<=\n){pattern})"), re.compile(rf"(?m:^{pattern})")


_TOP = "com|org|net|edu|gov|io|ai|dev|app|info|de|fr|uk|eu|ch|at|us|co"
_FILES = (
    "py|js|ts|md|txt|pdf|png|jpe?g|gif|svg|json|ya?ml|toml|html?|css|csv|xml|zip|gz|exe|mp[34]|wav|docx?|xlsx?|pptx?|"
    "sh|cpp|rs|go|java|ini|cfg|log|net"
)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}", re.ASCII)
_URL = re.compile(r"(?:https?|ftp|wss?)://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?*_`]", re.ASCII | re.IGNORECASE)
_DOMAIN = re.compile(
    rf"(?<![\w@.-])(?:www\.)?(?:[A-Za-z0-9-]{{1,63}}\.){{1,8}}(?:{_TOP})(?![\w-]|\.\w)(?::\d{{1,5}})?(?:/[\w./-]*\w)?",
    re.ASCII,
)
_FILE = re.compile(rf"(?<=[\w-])\.(?=(?:{_FILES})(?![\w.]\w|\w))|(?<!\S)\.(?=NET\b)", re.ASCII)
_IMAGE_OR_LINK = re.compile(r"!?\[([^\]\[\n]{0,300})\]\([^)\s]{0,1000}(?:\s\"[^\"\n]{0,200}\")?\)")
_AUTOLINK = re.compile(
    r"<((?:https?|ftp|wss?)://[^\s<>]{1,1000}|[\w.+-]{1,64}@[\w.-]{1,200})>", re.ASCII | re.IGNORECASE
)
_REFERRED = re.compile(r"!?\[([^\]\[\n]{1,300})\]\[[^\]\[\n]{0,100}\]")
_DEFINITION = _at_lines(r"[ \t]*\[[^\]\[^\n]{1,100}\]:[ \t]+<?(?:\w{2,8}:|/|#|\.)[^\n]*$")
_REST_OF_LINK = re.compile(r"\]\([^)\s]{0,1000}\)")
_REFERENCE = re.compile(r"\[\^?\d{1,3}\]")
_BOX = _at_lines(r"[ \t]*\[[ xX]\][ \t]")
_ENTITY = re.compile(r"&(?:\w{2,31}|#\d{1,6}|#x[0-9a-fA-F]{1,5});", re.ASCII)
_ESCAPE = re.compile(r"\\(?=[!-/:-@\[-`{-~]|\s|$)")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,1000}>|<!--")
_QUOTED = re.compile(r"`+")
_RULER = _at_lines(r"[ \t]*(?:(?:[-*_=~][ \t]*){3,}|[ \t|:-]*\|[ \t]*:?-+[ \t|:-]*)$")
_LINE_START = _at_lines(r"(?:[ \t]*(?:#{1,6}|>+|[-*+•])[ \t]+)+(?:\[[ xX]\][ \t])?")
_NUMBERED = _at_lines(r"([ \t]*\d{1,3})[.)](?=[ \t]+\S)")
_EMPHASIS = re.compile(r"\*+|~~|(?<![^\W_])_+|_+(?![^\W_])")
_SNAKE = re.compile(r"_+")
_CELL = re.compile(r"[ \t]*\|[ \t]*")
_FACE = re.compile(r"(?<![\w)])[:;=][-o*']?[)(\]\[DPp/\\|]+(?!\w)", re.ASCII)
_PATH = re.compile(r"(?<![\w/.])(?:~|\.{1,2})?(?:/[\w.-]{1,64}){2,16}/?(?!\w)", re.ASCII)


def plain(text: Traced, *, line: bool = True) -> Traced:
    """Links keep their label, addresses are spelled, marks go, rows of tables and list numbers become pauses.

    `line`: the text begins with a line.
    """
    text = text.spelled(_DEFINITION[line], lambda _: " ").keeping(_IMAGE_OR_LINK).keeping(_REFERRED)
    text = text.spelled(_REST_OF_LINK, lambda _: " ").keeping(_AUTOLINK)
    text = text.worded(_EMAIL, lambda match: spelled(match[0].replace("@", " at ")))
    text = text.worded(_URL, _url).worded(_DOMAIN, _url).worded(_PATH, _path)
    text = text.spelled(_ENTITY, _entity).spelled(_TAG, lambda _: " ")
    text = text.spelled(_QUOTED, lambda _: "").spelled(_RULER[line], lambda _: " ")
    text = text.spelled(_LINE_START[line], lambda _: " ").spelled(_BOX[line], lambda _: "")
    text = text.spelled(_REFERENCE, lambda _: "").spelled(_NUMBERED[line], lambda match: f"{match[1]},")
    text = text.spelled(_FACE, lambda _: " ").spelled(_ESCAPE, lambda _: "").worded(_FILE, lambda _: " dot ")
    return text.spelled(_CELL, lambda _: ", ")


def without_emphasis(text: Traced) -> Traced:
    """Stars and underscores that are left."""
    return text.spelled(_EMPHASIS, lambda _: "").spelled(_SNAKE, lambda _: " ")


def _entity(match: re.Match[str]) -> str | None:
    """The character that is meant; None where there is no such name."""
    written = match[0]
    meant = html.unescape(written) if written[1] == "#" else html5.get(written[1:])
    return None if meant is None else "".join(each if each.isprintable() else " " for each in meant)


def _url(match: re.Match[str]) -> str:
    shown = re.sub(r"^(?:\w+://)?(?:www\.)?", "", match[0], count=1, flags=re.IGNORECASE)
    host, _, path = shown.partition("/")
    path = re.split(r"[?#]", path, maxsplit=1)[0].strip("/")
    host = re.split(r"[?#]", host, maxsplit=1)[0].rpartition("@")[2]
    return spelled(host + ("".join(" slash " + part for part in path.split("/")) if path else ""))


def _path(match: re.Match[str]) -> str:
    path = match[0].rstrip(".")
    return spelled(" slash ".join(path.split("/"))) + match[0][len(path) :]


def spelled(address: str) -> str:
    """An address as it is read out."""
    for mark, word in ((".", " dot "), ("-", " dash "), ("_", " underscore "), (":", " colon "), ("+", " plus ")):
        address = address.replace(mark, word)
    return " ".join(re.sub(r"[^\w\s]", " ", address).split())
