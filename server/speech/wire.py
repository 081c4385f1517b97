"""JSON of clients into messages: what is wrong with it as a coded error that names the field."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from mstar.errors import Rejected
from server.events.decode import described, too_deep

T = TypeVar("T")


Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Of what is drawn."""


def tree_of(frame: str | bytes, *, cut: bool = True) -> dict[str, Any]:
    """The object of a frame. Raises Rejected.

    `cut`: a string may end in half a character, as clients cut text anywhere; else halves read as U+FFFD.
    """
    try:
        tree = msgspec.json.decode(frame)
    except RecursionError:
        raise Rejected("The message is nested too deeply.", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeError):
        try:
            tree = json.loads(frame, parse_float=_number, parse_constant=_number)
            tree = tree if cut else _whole(tree)
        except (ValueError, RecursionError):
            raise Rejected("The message is not valid JSON.", code="invalid_json") from None
    if not isinstance(tree, dict):
        raise Rejected("A message must be a JSON object.", code="invalid_type")
    if deep := too_deep(tree):
        raise deep
    return tree


def _number(text: str) -> float:
    """Raises ValueError for one that is none, or that has no end."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.80} is no number")
    return number


def _whole(tree: Any) -> Any:
    """A tree in whose strings lone halves of characters are U+FFFD."""
    match tree:
        case str():
            return tree.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case dict():
            return {_whole(name): _whole(each) for name, each in tree.items()}
        case list():
            return [_whole(each) for each in tree]
        case _:
            return tree


def message_of(tree: Any, kind: type[T]) -> T:
    """A tree as a message. Raises Rejected."""
    return _converted(tree, kind, strict=True)


def query_of(query: Any, kind: type[T]) -> T:
    """The fields of an address as a message; numbers and truths are read from text. Raises Rejected."""
    found = _converted(dict(query), kind, strict=False)
    for name in query:
        if isinstance(value := getattr(found, name, None), float) and not math.isfinite(value):
            raise Rejected(f"'{name}' must be a number, not {value}.", code="invalid_value", param=name)
    return found


def _converted(tree: Any, kind: type[T], *, strict: bool) -> T:
    try:
        try:
            return msgspec.convert(tree, kind, strict=strict)
        except UnicodeEncodeError:  # half a character where a name is due
            return msgspec.convert(_whole(tree), kind, strict=strict)
    except msgspec.ValidationError as wrong:
        raise described(str(wrong)).rejected from None


def json_text(message: Any) -> bytes:
    """A message as JSON; bytes as base64. What a client wrote may stand in it with halves of characters."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(message)).encode()
