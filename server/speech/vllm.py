"""`WS /v1/audio/speech/stream`: the messages of vLLM-Omni, and `input.cancel`.

An utterance is what lies between two `input.done`; it is spoken while it is being written, whatever
`split_granularity` says, and its sound is one `audio.start` … `audio.done`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from media.codecs import encode
from media.frames import PcmF, from_bytes
from models.registry import Card
from mstar.errors import Rejected
from server.door import SERVER
from server.speech.context import Ended, Event, Flushed, Sound, Words
from server.speech.driver import Speaker
from server.speech.entry import allowed, family_for, key_for
from server.speech.offers import Said, asked_aligned, settings_of, speaking
from server.speech.socket import Line, converse
from server.speech.sound import Outlet, Shape, rate_for
from server.speech.timing import Timeline, spans
from server.speech.wire import Seed, message_of, tree_of

CONTEXT = "utterance"
Coding = Literal["wav", "pcm", "flac", "mp3", "opus"]


class SessionConfig(Struct, tag_field="type", tag="session.config", forbid_unknown_fields=True):
    """Fields of voices that are cloned or designed are taken where they are empty."""

    model: str = ""
    voice: str = ""
    speaker: str = ""
    task_type: Literal["CustomVoice"] | None = None
    language: str | None = None
    instructions: str | None = None
    response_format: Coding = "wav"
    speed: float | None = None
    max_new_tokens: int | None = None
    initial_codec_chunk_frames: int | None = None
    ref_audio: None = None
    ref_text: None = None
    x_vector_only_mode: bool | None = None
    speaker_embedding: None = None
    non_streaming_mode: bool | None = None
    stream_audio: bool = False
    split_granularity: Literal["none", "sentence", "clause"] = "none"
    word_timestamps: bool = False
    seed: Seed | None = None
    sample_rate: Annotated[int, Meta(ge=8000, le=48_000)] | None = None


class InputText(Struct, tag_field="type", tag="input.text", forbid_unknown_fields=True):
    text: str


class InputDone(Struct, tag_field="type", tag="input.done", forbid_unknown_fields=True):
    """The utterance is whole."""


class InputCancel(Struct, tag_field="type", tag="input.cancel", forbid_unknown_fields=True):
    """Nothing more is wanted of what was written."""


class SessionClose(Struct, tag_field="type", tag="session.close", forbid_unknown_fields=True):
    pass


Message = SessionConfig | InputText | InputDone | InputCancel | SessionClose


class AudioStart(Struct, tag_field="type", tag="audio.start"):
    utterance_index: int
    sentence_text: str
    format: str
    sample_rate: int
    sentence_index: int = 0


class Stamp(Struct):
    word: str
    start_ms: int
    end_ms: int


class AudioChunk(Struct, tag_field="type", tag="audio.chunk"):
    """In place of a binary frame, where word times were asked for."""

    chunk_id: int
    chunk_start_ms: int
    chunk_end_ms: int
    sample_rate: int
    audio_b64: bytes
    timestamps: list[Stamp]


class AudioDone(Struct, tag_field="type", tag="audio.done"):
    utterance_index: int
    total_bytes: int
    sentence_index: int = 0
    error: bool = False
    finish_reason: str = "stop"


class SessionDone(Struct, tag_field="type", tag="session.done"):
    utterance_index: int
    total_sentences: int


class InputCancelled(Struct, tag_field="type", tag="input.cancelled"):
    """No sound follows that was written before."""

    utterance_index: int


class Problem(Struct, tag_field="type", tag="error"):
    message: str
    code: str
    param: str | None
    partial_audio: bool | UnsetType = UNSET
    action: str | UnsetType = UNSET


class _Utterance:
    """Sound of the utterance that is being said. Positions are samples of the context."""

    def __init__(self, outlet: Outlet, first: int) -> None:
        self.outlet = outlet
        self.first = first
        self.sent = first
        self.total = 0  # bytes
        self.chunks = 0
        self.whole = b""
        self.words = Timeline()


class VllmSocket:
    """One connection."""

    idle_seconds = 30.0

    def __init__(self, line: Line, cards: Mapping[str, Card]) -> None:
        self._line = line
        self._cards = cards
        self._config = SessionConfig()
        self._said: Said | None = None
        self._settings: dict[str, Any] = {}
        self._shape = Shape("pcm", 24_000)
        self._speaker: Speaker | None = None
        self._index = 0  # of the utterance that is being said
        self._written = 0  # of the one that is being written
        self._text: list[str] = [""]  # of the utterances from `_index` on
        self._now: _Utterance | None = None

    @property
    def busy(self) -> bool:
        return self._speaker is not None and not self._speaker.context.idle

    def idle(self) -> None:
        self._line.end(1000, "idle")

    def gone(self) -> None:
        if self._speaker is not None:
            self._speaker.cancel()

    def refuse(self, why: Rejected) -> None:
        self._line.send(Problem(why.message, why.code, why.param))

    async def take(self, frame: str) -> None:
        message: Message = message_of(tree_of(frame), Message)  # type: ignore[arg-type]
        match message:
            case SessionConfig():
                self._configure(message)
            case InputText(text):
                speaker = await self._open()
                speaker.append(text)
                self._text[-1] += text
            case InputDone():
                speaker = await self._open()
                speaker.context.check("type")
                number, self._written = self._written, self._written + 1
                self._text.append("")
                speaker.flush(number)
            case InputCancel():
                self._cancel()
            case SessionClose():
                self._line.end(1000, "")

    def _configure(self, config: SessionConfig) -> None:
        if self.busy:
            raise Rejected("An utterance is being said.", code="utterance_in_progress", param="type")
        said = speaking(self._cards, config.model)
        offer = said.offer
        settings = settings_of(offer, voice=config.voice or config.speaker, speed=config.speed, seed=config.seed)
        if config.word_timestamps:
            asked_aligned(offer, "word_timestamps")
        rate = rate_for(config.response_format, offer.rate, config.sample_rate)
        self.gone()
        self._config, self._said, self._settings, self._speaker = config, said, settings, None
        self._shape = Shape(config.response_format, rate)

    async def _open(self) -> Speaker:
        if self._said is None:
            raise Rejected("The first message must be session.config.", code="not_configured", param="type")
        if self._speaker is None:
            self._speaker = await self._line.speaker(self._said, self._settings, self._told)
        return self._speaker

    def _cancel(self) -> None:
        self.gone()
        now, self._speaker, self._now = self._now, None, None
        streamed = now.outlet if now is not None and self._config.stream_audio else None
        if rest := self._line.cut(CONTEXT, streamed):
            self._end_with(rest, now)
        self._line.send(InputCancelled(self._written))
        self._written += 1
        self._index = self._written
        self._text = [""]

    # ------------------------------------------------------------------------------------------- out

    def _told(self, event: Event) -> None:
        match event:
            case Sound(start, pcm):
                self._sound(self._begun(start), pcm, start + len(pcm))
            case Words(words):
                self._begun(words[0].start).words.add(spans(words))
            case Flushed(samples=samples, reason=reason):
                self._done(samples, reason)
            case Ended(status="failed", error=Rejected() as why):
                self._failed(why)
            case _:
                pass

    def _begun(self, start: int) -> _Utterance:
        if self._now is None:
            assert self._said is not None
            config, shape = self._config, self._shape
            if not config.stream_audio and shape.coding in ("wav", "flac"):  # the whole file states its length
                shape = Shape("pcm", shape.rate)
            self._now = _Utterance(Outlet(self._said.offer.rate, shape), start)
            text = self._text[0]
            self._line.send(AudioStart(self._index, text, config.response_format, shape.rate), CONTEXT)
        return self._now

    def _sound(self, now: _Utterance, pcm: PcmF, end: int) -> None:
        if self._config.stream_audio:
            self._line.sound(pcm, now.outlet, self._part(now, end), CONTEXT)
        else:
            now.whole += now.outlet.feed(pcm)

    def _part(self, now: _Utterance, end: int) -> Callable[[bytes], bytes | AudioChunk]:
        """What makes a message of the sound up to sample `end`."""

        def made(sound: bytes) -> bytes | AudioChunk:
            now.total += len(sound)
            return self._chunk(now, sound, end) if self._config.word_timestamps else sound

        return made

    def _end_with(self, rest: bytes, now: _Utterance | None) -> None:
        """A fade behind what has left."""
        if not self._config.word_timestamps:
            self._line.send_bytes(rest, "")
        elif now is not None:
            self._line.send(self._chunk(now, rest, now.sent))

    def _chunk(self, now: _Utterance, sound: bytes, end: int) -> AudioChunk:
        first, last = self._ms(now, now.sent), self._ms(now, end)
        told = [Stamp(each.text, self._ms(now, each.start), self._ms(now, each.end)) for each in now.words.take(end)]
        number, now.chunks, now.sent = now.chunks, now.chunks + 1, end
        return AudioChunk(number, first, last, self._shape.rate, sound, told)

    def _ms(self, now: _Utterance, sample: int) -> int:
        """Milliseconds of the utterance."""
        assert self._said is not None
        return round((sample - now.first) * 1000 / self._said.offer.rate)

    def _done(self, samples: int, reason: str) -> None:
        now, self._now = self._now, None
        index = self._index
        if now is not None:
            if self._config.stream_audio:
                self._line.border(now.outlet, self._part(now, samples), CONTEXT, last=True)
            else:
                self._whole(now, samples)
            self._line.send_later(lambda: AudioDone(index, now.total, finish_reason=reason), CONTEXT)
        self._line.send(SessionDone(index, int(now is not None)))
        self._index += 1
        self._text.pop(0)

    def _whole(self, now: _Utterance, samples: int) -> None:
        whole, form = now.whole + now.outlet.finish(), self._config.response_format
        if form in ("wav", "flac"):
            whole = encode(form, from_bytes(whole), self._shape.rate)
        message = self._part(now, samples)(whole)
        if isinstance(message, bytes):
            self._line.send_bytes(message, CONTEXT)
        else:
            self._line.send(message, CONTEXT)

    def _failed(self, why: Rejected) -> None:
        partial = self._now is not None
        if (now := self._now) is not None:
            index = self._index
            self._line.send_later(lambda: AudioDone(index, now.total, error=True), "")
        self._line.send(Problem(why.message, why.code, why.param, partial, "discard"))
        self._speaker = self._now = None
        self._written += 1
        self._index, self._text = self._written, [""]


async def vllm(request: web.Request) -> web.StreamResponse:
    """The route."""
    allowed(request, key_for(request))
    cards = request.app[SERVER].cards
    said = family_for(request, request.query.get("model"))
    return await converse(request, "vllm", lambda line: VllmSocket(line, cards), said=said)
