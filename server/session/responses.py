"""One response, from `response.created` to `response.done`: every event about it is made here, in nested order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypedDict

import msgspec
import numpy as np

from server.events.items import Content, Item
from server.events.server import (
    CachedTokens,
    ContentPartAdded,
    ContentPartDone,
    ConversationItemAdded,
    ConversationItemDone,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    InputTokens,
    OutputAudioDone,
    OutputAudioTranscriptDelta,
    OutputAudioTranscriptDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    OutputTokens,
    Part,
    ResponseAudio,
    ResponseCreated,
    ResponseDone,
    ResponseObject,
    ResponseOutput,
    ResponseStatus,
    StatusDetails,
    Usage,
)
from server.events.session import AudioFormat, Tool, ToolChoice
from server.session.alignment import Word, begun_text
from server.session.commands import PlayAudio, Underran
from server.session.log import Entry, Log, Speech, cut
from server.session.outbox import Outbox
from server.session.playout import PcmF, Playout
from server.session.recordings import Recordings

_SILENCE: PcmF = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Spec:
    """What was asked for: the session's settings with those of the `response.create` over them."""

    conversation: bool
    modality: Literal["audio", "text"]
    format: AudioFormat
    voice: str
    speed: float
    max_output_tokens: int | Literal["inf"]
    instructions: str
    tools: tuple[Tool, ...]
    tool_choice: ToolChoice
    metadata: dict[str, str] | None = None
    entries: tuple[Entry, ...] | None = None  # instead of the conversation's
    answer_silence: bool = False  # answer although the user made a noise without words


@dataclass(slots=True)
class Message:
    """The assistant's message of a response while it is being said."""

    entry: Entry
    output_index: int
    previous: str | None
    text: list[str] = field(default_factory=list)
    speech: Speech | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Counted by the family: prompt tokens, how many of them were cached, and generated ones; why it ended."""

    prompt: int = 0
    reused: int = 0
    generated: int = 0
    reason: str = "stop"


class _Place(TypedDict):
    response_id: str
    item_id: str
    output_index: int
    content_index: int


class _CallPlace(TypedDict):
    response_id: str
    item_id: str
    output_index: int
    call_id: str


class Response:
    """`playout` is None for a response in text."""

    def __init__(
        self,
        out: Outbox,
        log: Log,
        recordings: Recordings,
        spec: Spec,
        conversation_id: str,
        playout: Playout | None,
    ) -> None:
        self.id = out.new_id("resp")
        self.spec = spec
        self.playout = playout
        self.status: ResponseStatus = "in_progress"
        self.tokens = Tokens()
        self.generated = False
        """Whether the family has said everything."""
        self._out = out
        self._log = log
        self._recordings = recordings
        self._conversation_id = conversation_id if spec.conversation else None
        self._message: Message | None = None
        self._output: list[Item | None] = []
        out.send(ResponseCreated(response=self._shown(None)))

    # ------------------------------------------------------------------------------------------- what is said

    def say(self, delta: str) -> None:
        """More text of the answer."""
        message = self._open()
        message.text.append(delta)
        at = self._at(message)
        if self.playout is None:
            self._out.send(OutputTextDelta(delta=delta, **at))
        else:
            self._out.send(OutputAudioTranscriptDelta(delta=delta, **at))

    def sound(self, pcm: PcmF, trimmed: int = 0) -> None:
        """More sound of the answer; `play` sends it. `trimmed`: samples of silence cut from the answer's beginning."""
        if self.playout is not None:
            message = self._open()
            if message.speech is not None:
                message.speech.trimmed = trimmed
            self.playout.offer(pcm)

    def align(self, words: list[Word]) -> None:
        """When words of the text sound."""
        message = self._open()
        if message.speech is not None:
            message.speech.words.extend(words)

    def call(self, name: str, arguments: str) -> None:
        """The model calls a function."""
        index = len(self._output)
        self._output.append(None)
        item_id, call_id = self._out.new_id("item"), self._out.new_id("call")
        item = Item("function_call", item_id, "realtime.item", "in_progress", call_id=call_id, name=name, arguments="")
        entry = Entry(item)
        self._out.send(OutputItemAdded(response_id=self.id, output_index=index, item=item))
        previous = self._to_log(entry)
        here: _CallPlace = {"response_id": self.id, "item_id": item_id, "output_index": index, "call_id": call_id}
        self._out.send(FunctionCallArgumentsDelta(delta=arguments, **here))
        self._out.send(FunctionCallArgumentsDone(name=name, arguments=arguments, **here))
        entry.item = msgspec.structs.replace(item, status="completed", arguments=arguments)
        self._finish_item(entry, index, previous)

    def play(self, now: float) -> bool:
        """Send the sound that may go now → whether any went."""
        if self.playout is None or self._message is None:
            return False
        before = self.playout.underruns
        pieces = self.playout.take(now)
        if self.playout.underruns > before:
            self._out.do(Underran(self.id))
        for piece in pieces:
            self._play(self._message, piece.start, piece.pcm, last=False, slack=piece.slack)
            if self._log.find(self._message.entry.id) is not None:
                self._recordings.add(self._message.entry.id, self.playout.rate, piece.pcm)
        if self._message.speech is not None:
            self._message.speech.sent = self.playout.sent
        return bool(pieces)

    # ------------------------------------------------------------------------------------------- how it ends

    @property
    def complete(self) -> bool:
        """Everything was said and has left."""
        return self.generated and (self.playout is None or self._message is None or self.playout.drained)

    def close(self, status: ResponseStatus, details: StatusDetails | None = None) -> None:
        """The one closing sequence."""
        if self.status != "in_progress":
            return
        self.status = status
        if self._message is not None:
            self._close_message(self._message, status)
        self._out.send(ResponseDone(response=self._shown(details)))

    def _close_message(self, message: Message, ended: ResponseStatus) -> None:
        at = self._at(message)
        text = "".join(message.text)
        speech = message.speech
        if speech is None:
            self._out.send(OutputTextDone(text=text, **at))
            self._out.send(ContentPartDone(part=Part("text", text=text), **at))
            content = Content("output_text", text=text)
        else:
            if ended != "cancelled":
                self._play(message, speech.sent, _SILENCE, last=True)
            if ended in ("cancelled", "failed"):
                text = begun_text(text, speech.words, speech.sent + speech.trimmed)
            self._out.send(OutputAudioDone(**at))
            self._out.send(OutputAudioTranscriptDone(transcript=text, **at))
            self._out.send(ContentPartDone(part=Part("audio", transcript=text), **at))
            content = Content("output_audio", transcript=text)
        entry = message.entry
        status: Literal["completed", "incomplete"] = "completed" if ended == "completed" else "incomplete"
        entry.item = msgspec.structs.replace(entry.item, status=status, content=(content,))
        self._finish_item(entry, message.output_index, message.previous)
        if speech is not None and entry.cut_ms is not None:
            cut(entry, entry.cut_ms * speech.rate // 1000)

    # ------------------------------------------------------------------------------------------- parts

    @property
    def item_id(self) -> str | None:
        """Id of the message, once there is one."""
        return self._message.entry.id if self._message is not None else None

    def _open(self) -> Message:
        if self._message is not None:
            return self._message
        item = Item("message", self._out.new_id("item"), "realtime.item", "in_progress", "assistant", ())
        speech = Speech(self.playout.rate) if self.playout is not None else None
        entry = Entry(item, speech=speech)
        index = len(self._output)
        self._output.append(None)
        self._out.send(OutputItemAdded(response_id=self.id, output_index=index, item=item))
        previous = self._to_log(entry)
        self._message = message = Message(entry, index, previous, speech=speech)
        part = Part("text", text="") if speech is None else Part("audio", transcript="")
        self._out.send(ContentPartAdded(part=part, **self._at(message)))
        return message

    def _to_log(self, entry: Entry) -> str | None:
        if not self.spec.conversation:
            return None
        previous = self._log.add(entry)
        self._out.send(ConversationItemAdded(item=entry.item, previous_item_id=previous))
        return previous

    def _finish_item(self, entry: Entry, index: int, previous: str | None) -> None:
        if self.spec.conversation:
            self._out.send(ConversationItemDone(item=entry.item, previous_item_id=previous))
        self._output[index] = entry.item
        self._out.send(OutputItemDone(response_id=self.id, output_index=index, item=entry.item))

    def _at(self, message: Message) -> _Place:
        return {
            "response_id": self.id,
            "item_id": message.entry.id,
            "output_index": message.output_index,
            "content_index": 0,
        }

    def _play(self, message: Message, start: int, pcm: PcmF, *, last: bool, slack: float | None = None) -> None:
        place = (self.id, message.entry.id, message.output_index, 0)
        self._out.do(PlayAudio(*place, self.spec.format, start, pcm, last, slack))

    def _shown(self, details: StatusDetails | None) -> ResponseObject:
        return ResponseObject(
            object="realtime.response",
            id=self.id,
            status=self.status,
            status_details=details,
            output=tuple(item for item in self._output if item is not None),
            conversation_id=self._conversation_id,
            output_modalities=(self.spec.modality,),
            max_output_tokens=self.spec.max_output_tokens,
            audio=ResponseAudio(ResponseOutput(self.spec.format, self.spec.voice)),
            usage=None if self.status == "in_progress" else self._usage(),
            metadata=self.spec.metadata,
        )

    def _usage(self) -> Usage:
        tokens = self.tokens
        return Usage(
            total_tokens=tokens.prompt + tokens.generated,
            input_tokens=tokens.prompt,
            output_tokens=tokens.generated,
            input_token_details=InputTokens(
                text_tokens=tokens.prompt,
                cached_tokens=tokens.reused,
                cached_tokens_details=CachedTokens(text_tokens=tokens.reused),
            ),
            output_token_details=OutputTokens(text_tokens=tokens.generated),
        )
