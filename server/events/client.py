"""What a client may say: the eleven events of the Realtime API."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from server.events.items import InputItem, Item
from server.events.session import AudioFormat, MaxTokens, Modalities, SessionPatch, Speed, Tool, ToolChoice, VoiceId

MetaKey = Annotated[str, Meta(max_length=64)]
MetaText = Annotated[str, Meta(max_length=512)]
Metadata = Annotated[dict[MetaKey, MetaText], Meta(max_length=16)]


class ClientEvent(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    """`event_id` comes back in the error that the event causes, and nowhere else."""

    event_id: str | None = None


class SessionUpdate(ClientEvent, frozen=True, tag="session.update"):
    session: SessionPatch


class InputAudioBufferAppend(ClientEvent, frozen=True, tag="input_audio_buffer.append"):
    audio: bytes


class InputAudioBufferCommit(ClientEvent, frozen=True, tag="input_audio_buffer.commit"):
    pass


class InputAudioBufferClear(ClientEvent, frozen=True, tag="input_audio_buffer.clear"):
    pass


class ConversationItemCreate(ClientEvent, frozen=True, tag="conversation.item.create"):
    item: Item
    previous_item_id: str | None = None


class ConversationItemRetrieve(ClientEvent, frozen=True, tag="conversation.item.retrieve"):
    item_id: str


class ConversationItemTruncate(ClientEvent, frozen=True, tag="conversation.item.truncate"):
    item_id: str
    audio_end_ms: Annotated[float, Meta(ge=0)]
    content_index: Annotated[int, Meta(ge=0)] = 0


class ConversationItemDelete(ClientEvent, frozen=True, tag="conversation.item.delete"):
    item_id: str


class ResponseOutputPatch(Struct, frozen=True, forbid_unknown_fields=True):
    format: AudioFormat | UnsetType = UNSET
    voice: str | VoiceId | UnsetType = UNSET
    speed: Speed | UnsetType = UNSET


class ResponseAudioPatch(Struct, frozen=True, forbid_unknown_fields=True):
    output: ResponseOutputPatch | UnsetType = UNSET


class ResponseParams(Struct, frozen=True, forbid_unknown_fields=True):
    """What one response does otherwise than its session."""

    conversation: str | None | UnsetType = UNSET
    input: tuple[InputItem, ...] | None | UnsetType = UNSET
    instructions: str | None | UnsetType = UNSET
    output_modalities: Modalities | None | UnsetType = UNSET
    audio: ResponseAudioPatch | None | UnsetType = UNSET
    tools: tuple[Tool, ...] | None | UnsetType = UNSET
    tool_choice: ToolChoice | None | UnsetType = UNSET
    max_output_tokens: MaxTokens | None | UnsetType = UNSET
    metadata: Metadata | None | UnsetType = UNSET
    prompt: Any = UNSET
    reasoning: Any = UNSET
    parallel_tool_calls: bool | None | UnsetType = UNSET


class ResponseCreate(ClientEvent, frozen=True, tag="response.create"):
    response: ResponseParams | None = None


class ResponseCancel(ClientEvent, frozen=True, tag="response.cancel"):
    response_id: str | None = None


class OutputAudioBufferClear(ClientEvent, frozen=True, tag="output_audio_buffer.clear"):
    pass


AnyClientEvent = (
    SessionUpdate
    | InputAudioBufferAppend
    | InputAudioBufferCommit
    | InputAudioBufferClear
    | ConversationItemCreate
    | ConversationItemRetrieve
    | ConversationItemTruncate
    | ConversationItemDelete
    | ResponseCreate
    | ResponseCancel
    | OutputAudioBufferClear
)
