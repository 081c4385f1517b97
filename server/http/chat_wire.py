"""Messages of `POST /v1/chat/completions` and `/v1/completions`, field by field as the API has them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from server.http.content import AnyPart
from server.speech.wire import Seed

Stop = str | Annotated[list[str], Meta(max_length=4)] | None
Count = Annotated[int, Meta(ge=1)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]


class Function(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=64)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Struct, forbid_unknown_fields=True):
    function: Function
    type: Literal["function"] = "function"


class CalledFunction(Struct):
    name: str
    arguments: str


class ToolCall(Struct):
    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class FunctionName(Struct, forbid_unknown_fields=True):
    name: str


class ChosenTool(Struct, forbid_unknown_fields=True):
    function: FunctionName
    type: Literal["function"] = "function"


class AudioId(Struct):
    id: str


class Message(Struct):
    """`audio` names a spoken answer of this server. Clients send answers back with whatever fields they came with."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[AnyPart] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    audio: AudioId | None = None


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Voice(Struct, forbid_unknown_fields=True):
    id: str


class AudioOut(Struct, forbid_unknown_fields=True):
    voice: str | Voice = ""
    format: Literal["wav", "aac", "mp3", "flac", "opus", "pcm16"] = "wav"


class ResponseFormat(Struct):
    type: str


class _Sampled(Struct, forbid_unknown_fields=True, kw_only=True):
    """What both routes have. `top_k` and `repetition_penalty` are additions."""

    model: str = ""
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0)] | None = None
    seed: Seed | None = None
    stop: Stop = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None


class ChatRequest(_Sampled, kw_only=True):
    messages: Annotated[list[Message], Meta(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | ChosenTool | None = None
    parallel_tool_calls: bool | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    audio: AudioOut | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: Any = None
    prompt_cache_retention: str | None = None


class CompletionRequest(_Sampled, kw_only=True):
    prompt: str | list[str]
    max_tokens: Count | None = None
    best_of: int | None = None
    echo: bool | None = None
    logprobs: int | None = None
    suffix: str | None = None


# ---------------------------------------------------------------------------------------------------- out


class PromptDetails(Struct):
    cached_tokens: int
    audio_tokens: int = 0


class CompletionDetails(Struct):
    reasoning_tokens: int = 0
    audio_tokens: int = 0


class Usage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class AudioAnswer(Struct):
    id: str
    data: bytes
    expires_at: int
    transcript: str


class Answer(Struct, omit_defaults=True):
    """An assistant's message. `content` and `refusal` are null rather than absent."""

    role: str
    content: str | None
    refusal: None
    audio: AudioAnswer | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class Choice(Struct):
    index: int
    message: Answer
    finish_reason: str
    logprobs: None = None


class ChatCompletion(Struct):
    id: str
    object: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    system_fingerprint: None = None


class AudioDelta(Struct, omit_defaults=True):
    id: str | UnsetType = UNSET
    data: bytes | UnsetType = UNSET
    transcript: str | UnsetType = UNSET
    expires_at: int | UnsetType = UNSET


class FunctionDelta(Struct, omit_defaults=True):
    arguments: str
    name: str | UnsetType = UNSET


class ToolCallDelta(Struct, omit_defaults=True):
    index: int
    id: str
    type: str
    function: FunctionDelta


class Delta(Struct, omit_defaults=True):
    role: str | UnsetType = UNSET
    content: str | None | UnsetType = UNSET
    audio: AudioDelta | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(Struct):
    index: int
    delta: Delta
    finish_reason: str | None
    logprobs: None = None


class Chunk(Struct, omit_defaults=True):
    """`usage` is null in all chunks but the last where it was asked for, else absent."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None | UnsetType = UNSET


class TextChoice(Struct):
    index: int
    text: str
    finish_reason: str | None
    logprobs: None = None


class Completion(Struct, omit_defaults=True):
    """Whole answers and chunks alike."""

    id: str
    object: str
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | None | UnsetType = UNSET
