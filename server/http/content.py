"""The content of a chat message: parts of several modalities, as they travel and as they are answered.

One codec a kind of part. A family names the modalities that it takes (`Conversation.takes`); a new one is a struct
here, its modality, and what it becomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from media.decode import decode_any
from media.frames import PcmF
from mstar.errors import Rejected

SOUND_SECONDS = 600.0
"""Longest sound of a part."""


class TextPart(Struct, tag_field="type", tag="text"):
    text: str


class RefusalPart(Struct, tag_field="type", tag="refusal"):
    """What an assistant said in place of an answer."""

    refusal: str


class SoundFile(Struct):
    """`format` is taken and not believed: the bytes say what they are."""

    data: bytes
    format: str = "wav"


class AudioPart(Struct, tag_field="type", tag="input_audio"):
    input_audio: SoundFile


class ImagePart(Struct, tag_field="type", tag="image_url"):
    image_url: Any


class VideoPart(Struct, tag_field="type", tag="video_url"):
    video_url: Any


class FilePart(Struct, tag_field="type", tag="file"):
    file: Any


AnyPart: TypeAlias = TextPart | RefusalPart | AudioPart | ImagePart | VideoPart | FilePart
"""A part on the wire."""

MODALITY: dict[type[Struct], str] = {
    TextPart: "text",
    RefusalPart: "text",
    AudioPart: "audio",
    ImagePart: "image",
    VideoPart: "video",
    FilePart: "file",
}


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Sound:
    """float32 [n] at the rate that was asked for."""

    pcm: PcmF


Part: TypeAlias = Text | Sound
"""A part as it is answered."""

Role = Literal["system", "developer", "user", "assistant", "tool"]


def parts_of(
    content: str | Sequence[AnyPart] | None, param: str, takes: Sequence[str], rate: int, *, spoken: bool
) -> list[Part]:
    """What a message holds. Decodes files: not on an event loop. `rate` of its sound; `spoken`: its role may have some.

    Raises Rejected naming the part.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(content)]
    return [_part(part, f"{param}[{at}]", takes, rate, spoken=spoken) for at, part in enumerate(content)]


def _part(part: AnyPart, param: str, takes: Sequence[str], rate: int, *, spoken: bool) -> Part:
    modality = MODALITY[type(part)]
    if modality not in takes or (modality != "text" and not spoken):
        kind = part.__struct_config__.tag
        text = f"Parts of type '{kind}' are not taken here; this model takes {', '.join(takes)}."
        raise Rejected(text, code="unsupported_content_type", param=f"{param}.type")
    match part:
        case TextPart(text):
            return Text(text)
        case RefusalPart(refusal):
            return Text(refusal)
        case AudioPart(sound):
            try:
                return Sound(decode_any(sound.data, rate=rate, max_seconds=SOUND_SECONDS)[0])
            except ValueError as wrong:
                where = f"{param}.input_audio.data"
                raise Rejected(f"'{where}': {wrong}.", code="invalid_audio", param=where) from None
        case _:
            raise TypeError(f"no codec for {type(part).__name__}")


def characters(content: str | Sequence[AnyPart] | None) -> int:
    """Of the text of a message."""
    if content is None or isinstance(content, str):
        return len(content or "")
    return sum(len(part.text) for part in content if isinstance(part, TextPart))
