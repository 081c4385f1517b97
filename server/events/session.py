"""The session object, and `session.update` as a deep merge that is checked whole before anything changes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from mstar.errors import Rejected

MaxTokens = Annotated[int, Meta(ge=1, le=4096)] | Literal["inf"]
Modalities = Annotated[tuple[Literal["audio", "text"], ...], Meta(min_length=1, max_length=1)]
Speed = Annotated[float, Meta(ge=0.25, le=1.5)]
Milliseconds = Annotated[int, Meta(ge=0, le=60_000)]
Eagerness = Literal["auto", "low", "medium", "high"]
MOST_WRITTEN = 2 * 1024 * 1024
"""Bytes of an event without its sound, and of a session as it is shown."""
PCM_RATE = 24_000
G711_RATE = 8_000


class AudioFormat(Struct, frozen=True, forbid_unknown_fields=True):
    """`audio/pcm` is little-endian signed 16 bit mono at 24 kHz, `audio/pcmu` and `audio/pcma` are G.711 at 8 kHz."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: int | None | UnsetType = UNSET

    @property
    def samples_per_second(self) -> int:
        return PCM_RATE if self.type == "audio/pcm" else G711_RATE


class Transcription(Struct, frozen=True, forbid_unknown_fields=True):
    """The names of other services' models are accepted; the family's own recogniser transcribes."""

    model: str | None | UnsetType = UNSET
    language: str | None | UnsetType = UNSET
    languages: tuple[str, ...] | None | UnsetType = UNSET
    prompt: str | None | UnsetType = UNSET
    keywords: tuple[str, ...] | None | UnsetType = UNSET
    delay: str | None | UnsetType = UNSET


class NoiseReduction(Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["near_field", "far_field"] | UnsetType = UNSET
    strength: float | None | UnsetType = UNSET


class ServerVad(Struct, frozen=True, tag_field="type", tag="server_vad"):
    """Ends a turn after `silence_duration_ms` of silence. Extensions: `prepare`, `interrupt_min_ms`."""

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    idle_timeout_ms: int | None = None
    create_response: bool = True
    interrupt_response: bool = True
    prepare: bool | UnsetType = UNSET
    interrupt_min_ms: int | UnsetType = UNSET


class SemanticVad(Struct, frozen=True, tag_field="type", tag="semantic_vad"):
    """Ends a turn sooner or later as the turn model says; eagerness bounds the wait."""

    eagerness: Eagerness = "auto"
    create_response: bool = True
    interrupt_response: bool = True
    prepare: bool | UnsetType = UNSET
    interrupt_min_ms: int | UnsetType = UNSET


TurnDetection = ServerVad | SemanticVad


class AudioInput(Struct, frozen=True):
    format: AudioFormat = AudioFormat("audio/pcm", PCM_RATE)
    transcription: Transcription | None = None
    noise_reduction: NoiseReduction | None = None
    turn_detection: TurnDetection | None = ServerVad()


class AudioOutput(Struct, frozen=True):
    format: AudioFormat = AudioFormat("audio/pcm", PCM_RATE)
    voice: str = "default"
    speed: float = 1.0


class Audio(Struct, frozen=True):
    input: AudioInput = AudioInput()
    output: AudioOutput = AudioOutput()


class Tool(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    type: Literal["function"] = "function"
    description: str | UnsetType = UNSET
    parameters: dict[str, Any] | UnsetType = UNSET


class ChosenTool(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    type: Literal["function"] = "function"


ToolChoice = Literal["auto", "none", "required"] | ChosenTool


class RetentionRatio(Struct, frozen=True, forbid_unknown_fields=True):
    retention_ratio: Annotated[float, Meta(ge=0.0, le=1.0)]
    type: Literal["retention_ratio"] = "retention_ratio"
    token_limits: dict[str, Any] | None | UnsetType = UNSET


Truncation = Literal["auto", "disabled"] | RetentionRatio


class Session(Struct, frozen=True):
    """The full effective session of type `realtime`, as `session.created` and `session.updated` show it."""

    type: Literal["realtime"]
    object: Literal["realtime.session"]
    id: str
    model: str
    expires_at: int
    output_modalities: tuple[Literal["audio", "text"], ...] = ("audio",)
    instructions: str = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    max_output_tokens: int | Literal["inf"] = "inf"
    truncation: Truncation = "auto"
    tracing: Any = None
    prompt: Any = None
    include: tuple[str, ...] | None = None
    audio: Audio = Audio()
    reasoning: Any = UNSET
    parallel_tool_calls: bool | None | UnsetType = UNSET


class TranscriptionAudio(Struct, frozen=True):
    input: AudioInput


class TranscriptionSession(Struct, frozen=True):
    """What is shown of a session of type `transcription`."""

    type: Literal["transcription"]
    object: Literal["realtime.transcription_session"]
    id: str
    expires_at: int
    include: tuple[str, ...] | None
    audio: TranscriptionAudio


class TurnDetectionPatch(Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["server_vad", "semantic_vad"] | UnsetType = UNSET
    threshold: Annotated[float, Meta(ge=0.0, le=1.0)] | None | UnsetType = UNSET
    prefix_padding_ms: Milliseconds | None | UnsetType = UNSET
    silence_duration_ms: Milliseconds | None | UnsetType = UNSET
    idle_timeout_ms: Annotated[int, Meta(ge=1_000, le=600_000)] | None | UnsetType = UNSET
    create_response: bool | None | UnsetType = UNSET
    interrupt_response: bool | None | UnsetType = UNSET
    eagerness: Eagerness | None | UnsetType = UNSET
    prepare: bool | None | UnsetType = UNSET
    interrupt_min_ms: Milliseconds | None | UnsetType = UNSET


class AudioInputPatch(Struct, frozen=True, forbid_unknown_fields=True):
    format: AudioFormat | UnsetType = UNSET
    transcription: Transcription | None | UnsetType = UNSET
    noise_reduction: NoiseReduction | None | UnsetType = UNSET
    turn_detection: TurnDetectionPatch | None | UnsetType = UNSET


class VoiceId(Struct, frozen=True, forbid_unknown_fields=True):
    id: str


class AudioOutputPatch(Struct, frozen=True, forbid_unknown_fields=True):
    format: AudioFormat | UnsetType = UNSET
    voice: str | VoiceId | UnsetType = UNSET
    speed: Speed | UnsetType = UNSET


class AudioPatch(Struct, frozen=True, forbid_unknown_fields=True):
    input: AudioInputPatch | UnsetType = UNSET
    output: AudioOutputPatch | UnsetType = UNSET


class SessionPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """`session` of a `session.update`. Fields of the server's own (id, object, expires_at, model) are not taken."""

    type: Literal["realtime", "transcription"]
    object: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    model: str | None | UnsetType = UNSET
    expires_at: int | None | UnsetType = UNSET
    output_modalities: Modalities | UnsetType = UNSET
    instructions: str | UnsetType = UNSET
    tools: tuple[Tool, ...] | UnsetType = UNSET
    tool_choice: ToolChoice | UnsetType = UNSET
    max_output_tokens: MaxTokens | UnsetType = UNSET
    truncation: Truncation | UnsetType = UNSET
    tracing: Any = UNSET
    prompt: Any = UNSET
    include: tuple[str, ...] | None | UnsetType = UNSET
    audio: AudioPatch | UnsetType = UNSET
    reasoning: Any = UNSET
    parallel_tool_calls: bool | None | UnsetType = UNSET


_READ_ONLY = frozenset({"type", "object", "id", "model", "expires_at", "audio"})
S = TypeVar("S", bound=Struct)


def _given(patch: Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(patch).items() if value is not UNSET}


def check_format(given: AudioFormat, param: str) -> AudioFormat:
    """The format with its rate as it is shown. Raises Rejected for a rate that the format does not have."""
    if given.type == "audio/pcm":
        if given.rate not in (UNSET, None, PCM_RATE):
            raise Rejected(
                f"Invalid value: {given.rate}. audio/pcm has a rate of {PCM_RATE} Hz.",
                code="invalid_value",
                param=f"{param}.rate",
            )
        return AudioFormat("audio/pcm", PCM_RATE)
    if given.rate not in (UNSET, None, G711_RATE):
        raise Rejected(
            f"Invalid value: {given.rate}. {given.type} has a rate of {G711_RATE} Hz.",
            code="invalid_value",
            param=f"{param}.rate",
        )
    return AudioFormat(given.type)


def _turn_detection(current: TurnDetection | None, patch: TurnDetectionPatch | None) -> TurnDetection | None:
    if patch is None:
        return None
    kinds: dict[str, type[ServerVad | SemanticVad]] = {"server_vad": ServerVad, "semantic_vad": SemanticVad}
    kind = kinds[patch.type] if patch.type is not UNSET else type(current) if current is not None else ServerVad
    start = current if type(current) is kind else kind()
    given = _given(patch)
    given.pop("type", None)
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    for name, value in given.items():
        if name not in known:
            path = f"session.audio.input.turn_detection.{name}"
            raise Rejected(f"Unknown parameter: '{path}'.", code="unknown_parameter", param=path)
        if value is None:
            given[name] = known[name].default
    return msgspec.structs.replace(start, **given)


def _input(current: AudioInput, patch: AudioInputPatch, *, buffered: bool) -> AudioInput:
    given = _given(patch)
    if patch.turn_detection is not UNSET:
        given["turn_detection"] = _turn_detection(current.turn_detection, patch.turn_detection)
    if patch.transcription:
        start = current.transcription or Transcription()
        given["transcription"] = msgspec.structs.replace(start, **_given(patch.transcription))
    if patch.format is not UNSET:
        given["format"] = check_format(patch.format, "session.audio.input.format")
        if buffered and given["format"] != current.format:
            raise Rejected(
                "The input format can not change while the input audio buffer holds audio; commit or clear it first.",
                code="invalid_value",
                param="session.audio.input.format",
            )
    return msgspec.structs.replace(current, **given)


def _output(current: AudioOutput, patch: AudioOutputPatch, *, spoken: bool) -> AudioOutput:
    given = _given(patch)
    if patch.format is not UNSET:
        given["format"] = check_format(patch.format, "session.audio.output.format")
    if patch.voice is not UNSET:
        given["voice"] = patch.voice if isinstance(patch.voice, str) else patch.voice.id
        if spoken and given["voice"] != current.voice:
            raise Rejected(
                "Cannot update a conversation's voice if assistant audio is present.",
                code="cannot_update_voice",
                param="session.audio.output.voice",
            )
    return msgspec.structs.replace(current, **given)


def updated(session: Session, patch: SessionPatch, *, spoken: bool = False, buffered: bool = False) -> Session:
    """The session after an update: absent = unchanged, per leaf; null clears where null is allowed.

    `spoken`: the conversation holds assistant audio, so its voice is fixed. `buffered`: uncommitted audio waits, so the
    input format is fixed. Raises Rejected with the path of the field at fault; then nothing has changed.
    """
    given = {name: value for name, value in _given(patch).items() if name not in _READ_ONLY}
    if patch.audio is not UNSET:
        audio = session.audio
        if patch.audio.input is not UNSET:
            audio = msgspec.structs.replace(audio, input=_input(audio.input, patch.audio.input, buffered=buffered))
        if patch.audio.output is not UNSET:
            audio = msgspec.structs.replace(audio, output=_output(audio.output, patch.audio.output, spoken=spoken))
        given["audio"] = audio
    changed = msgspec.structs.replace(session, **given)
    if len(msgspec.json.encode(changed)) > MOST_WRITTEN:
        text = f"A session may have {MOST_WRITTEN} bytes, its instructions and tools included."
        raise Rejected(text, code="session_too_large", param="session")
    return changed


def shown(session: Session, *, transcribing: bool) -> Session | TranscriptionSession:
    """The session as its type shows it."""
    if not transcribing:
        return session
    return TranscriptionSession(
        "transcription",
        "realtime.transcription_session",
        session.id,
        session.expires_at,
        session.include,
        TranscriptionAudio(session.audio.input),
    )
