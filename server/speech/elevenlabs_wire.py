"""ElevenLabs' messages, formats and alignments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from mstar.errors import Rejected
from server.speech.sound import Coding, Shape
from server.speech.timing import Span
from server.speech.wire import Seed

_FORMAT = re.compile(r"(?P<coding>mp3|pcm|wav|ulaw|alaw|opus)_(?P<rate>\d{4,5})(?:_(?P<kilobits>\d{2,3}))?")
_CODINGS: dict[str, Coding] = {"ulaw": "pcmu", "alaw": "pcma", "pcm": "pcm", "wav": "wav", "mp3": "mp3", "opus": "opus"}
_RATES = {
    "mp3": (22_050, 24_000, 44_100),
    "pcm": (8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    "wav": (8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    "ulaw": (8000,),
    "alaw": (8000,),
    "opus": (48_000,),
}
_KILOBITS = (24, 32, 48, 64, 96, 128, 192)
USUAL_FORMAT = "mp3_44100_128"


def shape_of(name: str) -> Shape:
    """An `output_format`. Raises Rejected."""
    match = _FORMAT.fullmatch(name)
    if match is not None and int(match["rate"]) in _RATES[match["coding"]]:
        coding, given = match["coding"], match["kilobits"]
        if coding in ("mp3", "opus") and given is not None and int(given) in _KILOBITS:
            return Shape(_CODINGS[coding], int(match["rate"]), int(given) * 1000)
        if coding not in ("mp3", "opus") and given is None:
            return Shape(_CODINGS[coding], int(match["rate"]))
    text = f"The output format '{name:.40}' is not supported; take mp3_44100_128, opus_48000_64, pcm_24000, ulaw_8000 …"
    raise Rejected(text, code="unsupported_output_format", param="output_format")


class Query(Struct):
    """Fields of the address. Those without effect here: logging, ssml, normalisation, `auto_mode`, `sync_alignment`."""

    model_id: str = ""
    output_format: str = USUAL_FORMAT
    inactivity_timeout: Annotated[float, Meta(ge=1, le=180)] = 20
    seed: Seed | None = None
    language_code: str | None = None
    enable_ssml_parsing: bool = False


Locators = Annotated[list[Any], Meta(max_length=0)] | None
"""Dictionaries of pronunciations: there are none."""


class VoiceSettings(Struct):
    """`speed` counts; the others are taken without effect."""

    speed: float | None = None


class Piece(Struct):
    """A client message. `text` "" ends; " " keeps alive."""

    text: str | None = None
    voice_settings: VoiceSettings | None = None
    flush: bool | None = None
    try_trigger_generation: bool | None = None
    xi_api_key: str | None = None
    authorization: str | None = None
    pronunciation_dictionary_locators: Locators = None


Name = Annotated[str, Meta(max_length=256)]


class ContextPiece(Piece):
    """A client message of a socket with contexts; without `context_id` it is for the context "default"."""

    context_id: Name | None = None
    contextId: Name | None = None  # noqa: N815 - some clients spell it so
    close_context: bool | None = None
    close_socket: bool | None = None

    @property
    def context(self) -> str:
        return self.context_id or self.contextId or "default"


class SpeechBody(Struct):
    """Body of the HTTP routes."""

    text: str
    model_id: str = ""
    language_code: str | None = None
    voice_settings: VoiceSettings | None = None
    seed: Seed | None = None
    pronunciation_dictionary_locators: Locators = None


class Alignment(Struct):
    """Characters of a chunk; times in ms from the chunk's beginning."""

    chars: list[str]
    charStartTimesMs: list[int]  # noqa: N815 - the protocol's spelling
    charDurationsMs: list[int]  # noqa: N815


class AudioOut(Struct):
    audio: bytes | None
    isFinal: bool | None = None  # noqa: N815
    alignment: Alignment | None = None
    normalizedAlignment: Alignment | None = None  # noqa: N815
    contextId: str | UnsetType = UNSET  # noqa: N815


class FinalOut(Struct):
    isFinal: bool = True  # noqa: N815
    contextId: str | UnsetType = UNSET  # noqa: N815


class Problem(Struct):
    """The last message before the connection closes."""

    message: str
    error: str
    code: int
    param: str | None = None
    contextId: str | UnsetType = UNSET  # noqa: N815


class Characters(Struct):
    """Times in seconds from the beginning of the sound."""

    characters: list[str]
    character_start_times_seconds: list[float]
    character_end_times_seconds: list[float]


class TimedAudio(Struct):
    audio_base64: bytes
    alignment: Characters | None
    normalized_alignment: Characters | None


def alignment_of(told: Sequence[Span], first: int, rate: int) -> Alignment | None:
    """Characters that begin in a chunk whose first sample is `first`."""
    if not told:
        return None
    starts = [_ms(each.start - first, rate) for each in told]
    ends = [_ms(each.end - first, rate) for each in told]
    durations = [end - start for start, end in zip(starts, ends, strict=True)]
    return Alignment([each.text for each in told], starts, durations)


def characters_of(told: Sequence[Span], rate: int) -> Characters | None:
    """The same from the beginning of the sound."""
    if not told:
        return None
    return Characters(
        [each.text for each in told],
        [round(each.start / rate, 3) for each in told],
        [round(each.end / rate, 3) for each in told],
    )


def detail(why: Rejected) -> dict[str, Any]:
    """A refusal as the HTTP routes say it."""
    return {"detail": {"status": why.code, "message": why.message, "param": why.param}}


def _ms(samples: int, rate: int) -> int:
    return round(max(0, samples) * 1000 / rate)
