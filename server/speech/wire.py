"""JSON of clients into messages: what is wrong with it as a coded error that names the field."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from mstar.errors import Rejected
from server.events.decode import described

T = TypeVar("T")


def tree_of(frame: str | bytes) -> dict[str, Any]:
    """The object of a frame. Raises Rejected. A string may end in half a character: clients cut text anywhere."""
    try:
        tree = msgspec.json.decode(frame)
    except RecursionError:
        raise Rejected("The message is nested too deeply.", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeError):
        try:
            tree = json.loads(frame)
        except (ValueError, RecursionError):
            raise Rejected("The message is not valid JSON.", code="invalid_json") from None
    if not isinstance(tree, dict):
        raise Rejected("A message must be a JSON object.", code="invalid_type")
    return tree


def message_of(tree: Any, kind: type[T]) -> T:
    """A tree as a message. Raises Rejected."""
    try:
        return msgspec.convert(tree, kind, strict=True)
    except msgspec.ValidationError as wrong:
        raise described(str(wrong)).rejected from None


def query_of(query: Any, kind: type[T]) -> T:
    """The fields of an address as a message; numbers and truths are read from text. Raises Rejected."""
    try:
        return msgspec.convert(dict(query), kind, strict=False)
    except msgspec.ValidationError as wrong:
        raise described(str(wrong)).rejected from None


def json_text(message: Any) -> bytes:
    """A message as JSON; bytes as base64."""
    return msgspec.json.encode(message)
