"""Conversation items as they travel, in both directions.

Sent fields are absent, never null (Zod-checked clients drop events with nulls); the one exception is `transcript`
of a user's `input_audio`, which is always there and null until it is known.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from mstar.errors import Rejected

ContentType = Literal["input_text", "input_audio", "input_image", "output_text", "output_audio", "text"]
Status = Literal["completed", "incomplete", "in_progress"]

_ALLOWED: dict[str, tuple[str, ...]] = {
    "user": ("input_text", "input_audio"),
    "system": ("input_text",),
    "assistant": ("output_text", "output_audio", "text"),
}


class Content(Struct, frozen=True, forbid_unknown_fields=True):
    """One part of a message. `audio` is raw sound in the session's input format (base64 on the wire)."""

    type: ContentType
    text: str | UnsetType = UNSET
    transcript: str | None | UnsetType = UNSET
    audio: bytes | UnsetType = UNSET
    image_url: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET

    @property
    def words(self) -> str:
        """What the part says, "" if that is not known."""
        return (self.text or "") + (self.transcript or "")


class Item(Struct, frozen=True, forbid_unknown_fields=True):
    """A message, a function call or its output."""

    type: Literal["message", "function_call", "function_call_output"]
    id: str | None | UnsetType = UNSET
    object: Literal["realtime.item"] | None | UnsetType = UNSET
    status: Status | None | UnsetType = UNSET
    role: Literal["user", "system", "assistant"] | UnsetType = UNSET
    content: tuple[Content, ...] | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    output: str | UnsetType = UNSET

    @property
    def parts(self) -> tuple[Content, ...]:
        return self.content or ()


class InputItem(Item, frozen=True):
    """What `response.input` holds: an item, or with type `item_reference` the id of one in the conversation."""

    type: Literal["message", "function_call", "function_call_output", "item_reference"]  # type: ignore[assignment]


def check_item(item: Item, param: str) -> None:
    """Raises Rejected where a client's item lacks what its type needs or holds what its role can not say."""
    required: dict[str, tuple[str, ...]] = {
        "message": ("role", "content"),
        "function_call": ("name", "arguments"),
        "function_call_output": ("call_id", "output"),
    }
    for name in required[item.type]:
        if getattr(item, name) is UNSET:
            raise Rejected(
                f"Missing required parameter: '{param}.{name}'.",
                code="missing_required_parameter",
                param=f"{param}.{name}",
            )
    for index, part in enumerate(item.parts):
        where = f"{param}.content[{index}]"
        if part.type not in _ALLOWED[str(item.role)]:
            raise Rejected(
                f"A {item.role} message can not hold content of type '{part.type}'.",
                code="unsupported_content_type",
                param=f"{where}.type",
            )
        needed = "audio" if part.type == "input_audio" and not part.transcript else "text"
        if part.type in ("input_audio", "output_audio") and needed == "text":
            continue
        if getattr(part, needed) is UNSET:
            raise Rejected(
                f"Missing required parameter: '{where}.{needed}'.",
                code="missing_required_parameter",
                param=f"{where}.{needed}",
            )
