"""Frames → client events, and what is wrong with a frame as a coded error that names the field."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from mstar.errors import Rejected
from server.events.client import AnyClientEvent

_decoder = msgspec.json.Decoder(AnyClientEvent)
_TYPES = sorted(kind.__struct_config__.tag for kind in AnyClientEvent.__args__)
_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>\$.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>.*)`$", re.DOTALL)


@dataclass(eq=False)
class BadEvent(Exception):  # not frozen: context managers write an exception's traceback
    """A frame that is no event. `event_id` is the client's, where one could be read."""

    message: str
    code: str
    param: str | None = None
    event_id: str | None = None

    @property
    def rejected(self) -> Rejected:
        """The same without the event's id."""
        return Rejected(self.message, code=self.code, param=self.param)


def decode(frame: bytes | str) -> AnyClientEvent:
    """One client event. Raises BadEvent."""
    try:
        try:
            return _decoder.decode(frame)
        except msgspec.ValidationError as wrong:
            raw = msgspec.json.decode(frame)
            raise _explain(str(wrong), raw) from None
    except RecursionError:
        raise BadEvent("The frame is nested too deeply.", "invalid_json") from None
    except (msgspec.DecodeError, UnicodeError) as wrong:
        raise BadEvent(f"The frame is not valid JSON: {wrong}", "invalid_json") from None


def _explain(wrong: str, raw: Any) -> BadEvent:
    if not isinstance(raw, dict):
        return BadEvent("An event must be a JSON object.", "invalid_type")
    given = raw.get("event_id")
    event_id = given if isinstance(given, str) else None
    kind = raw.get("type")
    if kind is None:
        return BadEvent("Missing required parameter: 'type'.", "missing_required_parameter", "type", event_id)
    if not isinstance(kind, str) or kind not in _TYPES:
        shown = f"{kind!r:.80}"
        message = f"Invalid value: {shown}. Supported values are: {', '.join(_TYPES)}."
        return BadEvent(message, "invalid_value", "type", event_id)
    return described(wrong, event_id)


def described(wrong: str, event_id: str | None = None, root: str = "") -> BadEvent:
    """A msgspec validation message as an error with code and parameter path (`root` goes before the path)."""
    match = _PATH.match(wrong)
    what = match["what"] if match else wrong
    path = root + (match["path"] or "$" if match else "$")[1:]
    for pattern, code, words in (
        (_UNKNOWN, "unknown_parameter", "Unknown parameter"),
        (_MISSING, "missing_required_parameter", "Missing required parameter"),
    ):
        found = pattern.match(what)
        if found:
            param = f"{path}.{found['name']}".lstrip(".")
            return BadEvent(f"{words}: '{param}'.", code, param, event_id)
    param = path.lstrip(".")
    code = "invalid_type" if re.match(r"^Expected `[^`]*`, got", what) else "invalid_value"
    return BadEvent(f"Invalid '{param}': {what}.", code, param, event_id)
