"""Frames and settings → typed values, and what is wrong with one as a coded error that names the field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from mstar.errors import Rejected
from server.events.client import AnyClientEvent, ConversationItemCreate, InputAudioBufferAppend, ResponseCreate
from server.events.items import Item
from server.events.session import MOST_WRITTEN

MOST_LEVELS = 64
"""Of lists and maps in each other, where a client may say what it likes (JSON schemas, prompts)."""
T = TypeVar("T")

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
            event = _decoder.decode(frame)
        except msgspec.ValidationError as wrong:
            raw = msgspec.json.decode(frame)
            raise _explain(str(wrong), raw) from None
    except RecursionError:
        raise BadEvent("The frame is nested too deeply.", "invalid_json") from None
    except (msgspec.DecodeError, UnicodeError) as wrong:
        raise BadEvent(f"The frame is not valid JSON: {wrong}", "invalid_json") from None
    length = bytes_of(frame)
    if length > MOST_WRITTEN and _written(event, length) > MOST_WRITTEN:
        text = f"An event may have {MOST_WRITTEN} bytes besides its audio."
        raise BadEvent(text, "event_too_long", event_id=event.event_id)
    if deep := too_deep(event):
        raise BadEvent(deep.message, deep.code, event_id=event.event_id)
    return event


def bytes_of(frame: bytes | str) -> int:
    """Length of a frame as it travels, in UTF-8. Raises UnicodeEncodeError for text with halves of characters."""
    return len(frame) if isinstance(frame, bytes) or frame.isascii() else len(frame.encode())


def settings_in(raw: bytes | str, kind: type[T], root: str = "") -> T:
    """JSON that comes in an HTTP request, as a value of this kind. `root` goes before the path. Raises Rejected."""
    try:
        value = msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as wrong:
        raise described(str(wrong), root=root).rejected from None
    except (msgspec.DecodeError, UnicodeError) as wrong:
        raise Rejected(f"Not valid JSON: {wrong}", code="invalid_json", param=root or None) from None
    except RecursionError:
        raise Rejected("The JSON is nested too deeply.", code="invalid_json", param=root or None) from None
    if deep := too_deep(value, root or None):
        raise deep
    return value


def _written(event: AnyClientEvent, length: int) -> int:
    """Bytes of a frame of that length without the sound in it (base64)."""
    match event:
        case InputAudioBufferAppend():
            return 0
        case ConversationItemCreate():
            return length - _sound([event.item])
        case ResponseCreate(response=response) if response is not None:
            return length - _sound(response.input or ())
        case _:
            return length


def _sound(items: Iterable[Item]) -> int:
    return sum(len(part.audio) * 4 // 3 for item in items for part in item.parts if part.audio)


def too_deep(value: object, param: str | None = None) -> Rejected | None:
    """What is wrong with a value of more than `MOST_LEVELS`."""
    if _deeper(value, MOST_LEVELS):
        return Rejected(f"It is nested more than {MOST_LEVELS} levels deep.", code="invalid_value", param=param)
    return None


def _deeper(value: object, levels: int) -> bool:
    """Whether it holds more levels than these."""
    if not levels:
        return True
    match value:
        case msgspec.Struct():
            parts: Iterable[object] = (getattr(value, name) for name in value.__struct_fields__)
        case Mapping():
            parts = value.values()
        case list() | tuple():
            parts = value
        case _:
            return False
    return any(_deeper(part, levels - 1) for part in parts)


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
