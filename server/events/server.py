"""What the server says. `event_id` is stamped by the session's outbox when the event is sent."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mstar.errors import Rejected
from server.events.items import Item
from server.events.session import AudioFormat, Session, TranscriptionSession


class ServerEvent(Struct, tag_field="type", kw_only=True):
    event_id: str = ""


class ErrorDetails(Struct, frozen=True):
    """`event_id` is the one of the client event at fault, null if it had none."""

    type: str
    code: str | None
    message: str
    param: str | None = None
    event_id: str | None = None


class Error(ServerEvent, tag="error"):
    error: ErrorDetails


def own_fault(why: Rejected, event_id: str) -> Error:
    """An error of the server's, not in answer to an event."""
    return Error(event_id=event_id, error=ErrorDetails("server_error", why.code, why.message, why.param))


class SessionCreated(ServerEvent, tag="session.created"):
    session: Session | TranscriptionSession


class SessionUpdated(ServerEvent, tag="session.updated"):
    session: Session | TranscriptionSession


# ------------------------------------------------------------------------------------------------ conversation


class ConversationItemAdded(ServerEvent, tag="conversation.item.added"):
    item: Item
    previous_item_id: str | None


class ConversationItemDone(ServerEvent, tag="conversation.item.done"):
    item: Item
    previous_item_id: str | None


class ConversationItemRetrieved(ServerEvent, tag="conversation.item.retrieved"):
    item: Item


class ConversationItemDeleted(ServerEvent, tag="conversation.item.deleted"):
    item_id: str


class ConversationItemTruncated(ServerEvent, tag="conversation.item.truncated"):
    item_id: str
    content_index: int
    audio_end_ms: int


class Duration(Struct, frozen=True):
    seconds: float
    type: Literal["duration"] = "duration"


class TranscriptionDelta(ServerEvent, tag="conversation.item.input_audio_transcription.delta"):
    item_id: str
    content_index: int
    delta: str


class TranscriptionCompleted(ServerEvent, tag="conversation.item.input_audio_transcription.completed"):
    item_id: str
    content_index: int
    transcript: str
    usage: Duration


class FailedBy(Struct, frozen=True):
    type: str
    code: str
    message: str
    param: str | None = None


class TranscriptionFailed(ServerEvent, tag="conversation.item.input_audio_transcription.failed"):
    item_id: str
    content_index: int
    error: FailedBy


# ------------------------------------------------------------------------------------------------ input audio


class SpeechStarted(ServerEvent, tag="input_audio_buffer.speech_started"):
    item_id: str
    audio_start_ms: int


class SpeechStopped(ServerEvent, tag="input_audio_buffer.speech_stopped"):
    item_id: str
    audio_end_ms: int


class InputAudioBufferCommitted(ServerEvent, tag="input_audio_buffer.committed"):
    item_id: str
    previous_item_id: str | None


class InputAudioBufferCleared(ServerEvent, tag="input_audio_buffer.cleared"):
    pass


class InputAudioBufferTimeoutTriggered(ServerEvent, tag="input_audio_buffer.timeout_triggered"):
    item_id: str
    audio_start_ms: int
    audio_end_ms: int


# ------------------------------------------------------------------------------------------------ responses


class ResponseOutput(Struct, frozen=True):
    format: AudioFormat
    voice: str


class ResponseAudio(Struct, frozen=True):
    output: ResponseOutput


class StatusError(Struct, frozen=True):
    type: str
    code: str
    message: str


class StatusDetails(Struct, frozen=True):
    type: Literal["cancelled", "incomplete", "failed"]
    reason: str | UnsetType = UNSET
    error: StatusError | UnsetType = UNSET


class CachedTokens(Struct, frozen=True):
    text_tokens: int = 0
    audio_tokens: int = 0
    image_tokens: int = 0


class InputTokens(Struct, frozen=True):
    text_tokens: int = 0
    audio_tokens: int = 0
    image_tokens: int = 0
    cached_tokens: int = 0
    cached_tokens_details: CachedTokens = CachedTokens()


class OutputTokens(Struct, frozen=True):
    text_tokens: int = 0
    audio_tokens: int = 0


class Usage(Struct, frozen=True):
    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    input_token_details: InputTokens = InputTokens()
    output_token_details: OutputTokens = OutputTokens()


ResponseStatus = Literal["in_progress", "completed", "cancelled", "failed", "incomplete"]


class ResponseObject(Struct, frozen=True):
    object: Literal["realtime.response"]
    id: str
    status: ResponseStatus
    status_details: StatusDetails | None
    output: tuple[Item, ...]
    conversation_id: str | None
    output_modalities: tuple[Literal["audio", "text"], ...]
    max_output_tokens: int | Literal["inf"]
    audio: ResponseAudio
    usage: Usage | None
    metadata: dict[str, str] | None


class ResponseCreated(ServerEvent, tag="response.created"):
    response: ResponseObject


class ResponseDone(ServerEvent, tag="response.done"):
    response: ResponseObject


class OutputItemAdded(ServerEvent, tag="response.output_item.added"):
    response_id: str
    output_index: int
    item: Item


class OutputItemDone(ServerEvent, tag="response.output_item.done"):
    response_id: str
    output_index: int
    item: Item


class Part(Struct, frozen=True):
    """`audio` with its transcript, or `text` with its text."""

    type: Literal["audio", "text"]
    text: str | UnsetType = UNSET
    transcript: str | UnsetType = UNSET


class PartEvent(ServerEvent):
    """What all events about one content part of a response carry."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int


class ContentPartAdded(PartEvent, tag="response.content_part.added"):
    part: Part


class ContentPartDone(PartEvent, tag="response.content_part.done"):
    part: Part


class OutputTextDelta(PartEvent, tag="response.output_text.delta"):
    delta: str


class OutputTextDone(PartEvent, tag="response.output_text.done"):
    text: str


class OutputAudioTranscriptDelta(PartEvent, tag="response.output_audio_transcript.delta"):
    delta: str


class OutputAudioTranscriptDone(PartEvent, tag="response.output_audio_transcript.done"):
    transcript: str


class OutputAudioDelta(PartEvent, tag="response.output_audio.delta"):
    """`delta` is sound in the session's output format (base64 on the wire)."""

    delta: bytes


class OutputAudioDone(PartEvent, tag="response.output_audio.done"):
    pass


class FunctionCallArgumentsDelta(ServerEvent, tag="response.function_call_arguments.delta"):
    response_id: str
    item_id: str
    output_index: int
    call_id: str
    delta: str


class FunctionCallArgumentsDone(ServerEvent, tag="response.function_call_arguments.done"):
    response_id: str
    item_id: str
    output_index: int
    call_id: str
    name: str
    arguments: str


# ------------------------------------------------------------------------------------------------ WebRTC only


class OutputAudioBufferStarted(ServerEvent, tag="output_audio_buffer.started"):
    response_id: str


class OutputAudioBufferStopped(ServerEvent, tag="output_audio_buffer.stopped"):
    response_id: str


class OutputAudioBufferCleared(ServerEvent, tag="output_audio_buffer.cleared"):
    response_id: str


# ------------------------------------------------------------------------------------------------ extensions


class Mark(Struct, frozen=True):
    """A moment of a turn: `ms` since the session was opened; `sample` where the moment has a place in a stream."""

    ms: float
    sample: int | UnsetType = UNSET


class TurnMarks(ServerEvent, tag="mstar.turn"):
    """Sent to clients that opted in (`?events=ext`): when the parts of a turn happened.

    Names: speech_end (sample of the microphone at 16 kHz), prepared, endpoint, transcript, first_token, first_clause,
    first_sample (ready at the server), heard (given to the client).
    """

    item_id: str | None
    response_id: str
    marks: dict[str, Mark]


class Trace(ServerEvent, tag="mstar.trace"):
    """Trace records of the runtime, for clients that opted in."""

    worker: str
    records: tuple[tuple[Any, ...], ...]


_encoder = msgspec.json.Encoder()


def encode(event: ServerEvent) -> bytes:
    """One JSON object, UTF-8."""
    return _encoder.encode(event)
