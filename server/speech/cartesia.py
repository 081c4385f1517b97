"""`WS /tts/websocket` (Cartesia): contexts by name on one socket, flush ids, cancel, word times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType, field

from models.registry import Card
from mstar.errors import Rejected
from server.door import SERVER
from server.security import FULL, OURS, PASSING
from server.speech.context import Ended, Event, Flushed, Sound, Words
from server.speech.driver import Speaker
from server.speech.entry import allowed, key_for
from server.speech.offers import Said, asked_aligned, settings_of, speaking
from server.speech.socket import Line, converse
from server.speech.sound import Coding, Outlet, Shape
from server.speech.timing import Timeline, spans
from server.speech.wire import Seed, message_of, tree_of

MOST_CONTEXTS = 64
USUAL_DELAY_MS = 3000
_CODINGS: dict[str, Coding] = {"pcm_s16le": "pcm", "pcm_f32le": "f32", "pcm_mulaw": "pcmu", "pcm_alaw": "pcma"}
_SPEEDS = {"slow": 0.8, "normal": 1.0, "fast": 1.25}


class Voice(Struct):
    """A voice of the family by name; embeddings are not taken."""

    id: str
    mode: Literal["id"] = "id"


class Format(Struct):
    encoding: Literal["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"]
    sample_rate: Literal[8000, 16000, 22050, 24000, 44100, 48000]
    container: Literal["raw"] = "raw"


class Generation(Struct):
    """`speed` counts, and `seed`, which the vendor does not have; volume and emotion are taken without effect."""

    speed: float | None = None
    seed: Seed | None = None


class Input(Struct):
    """Text of a context. `model_id`, `voice`, `output_format` and what follows them are those of its first message."""

    context_id: Annotated[str, Meta(min_length=1, max_length=256)]
    transcript: str
    model_id: str = ""
    voice: Voice | None = None
    output_format: Format | None = None
    speed: Literal["slow", "normal", "fast"] | None = None
    generation_config: Generation | None = None
    add_timestamps: bool | None = None
    add_phoneme_timestamps: bool | None = None
    max_buffer_delay_ms: Annotated[int, Meta(ge=0, le=5000)] | None = None
    pronunciation_dict_id: None = None
    continue_: bool | None = field(name="continue", default=None)
    flush: bool | None = None


class Cancel(Struct):
    context_id: str
    cancel: bool


class Chunk(Struct, tag_field="type", tag="chunk"):
    context_id: str
    data: bytes
    flush_id: int
    step_time: float  # ms since the chunk before
    done: bool = False
    status_code: int = 206


class WordTimes(Struct):
    """Seconds of the context's sound."""

    words: list[str]
    start: list[float]
    end: list[float]


class Timestamps(Struct, tag_field="type", tag="timestamps"):
    context_id: str
    word_timestamps: WordTimes
    flush_id: int
    done: bool = False
    status_code: int = 206


class FlushDone(Struct, tag_field="type", tag="flush_done"):
    context_id: str
    flush_id: int
    flush_done: bool = True
    done: bool = False
    status_code: int = 206


class Done(Struct, tag_field="type", tag="done"):
    context_id: str
    status_code: int = 200  # 499: cancelled
    done: bool = True


class Problem(Struct, tag_field="type", tag="error"):
    """Ends the context that it names; the socket and its other contexts live."""

    title: str
    message: str
    error_code: str
    param: str | None
    status_code: int
    context_id: str | UnsetType = UNSET
    done: bool = True


class Voicing:
    """One context."""

    def __init__(self, line: Line, said: Said, first: Input, shape: Shape, over: Callable[[str], None]) -> None:
        self.first = first
        self.speaker: Speaker | None = None
        self._line = line
        self._rate = said.offer.rate
        self._outlet = Outlet(said.offer.rate, shape)
        self._name = first.context_id
        self._over = over
        self._timed = bool(first.add_timestamps)
        self._timeline = Timeline()
        self._flush = 1  # id of the flush that what is being said belongs to
        self._flushes = 0  # asked for
        self._last = time.monotonic()
        self._delay = USUAL_DELAY_MS if first.max_buffer_delay_ms is None else first.max_buffer_delay_ms
        self._timer: asyncio.TimerHandle | None = None

    def write(self, given: Input) -> None:
        """Raises Rejected."""
        assert self.speaker is not None
        self.speaker.append(given.transcript, "transcript")
        if not given.continue_:
            self.still()
            self.speaker.end()
        elif given.flush:
            self.still()
            self.speaker.flush(self._flushes + 1)
            self._flushes += 1
        elif given.transcript.strip():
            self._wait()

    def still(self) -> None:
        """Nothing waits to be said."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cancel(self) -> None:
        assert self.speaker is not None
        self.still()
        self.speaker.cancel()

    def cut(self) -> None:
        """Nothing more is wanted, not even what has not left."""
        self.cancel()
        if rest := self._line.cut(self._name, self._outlet):
            self._line.send(Chunk(self._name, rest, self._flush, 0.0))

    def _wait(self) -> None:
        """Text that no clause has taken is said when nothing has come behind it for `max_buffer_delay_ms`."""
        self.still()
        if not self._delay:
            self._say()
        else:
            self._timer = self._line.later(self._delay / 1000, self._say)

    def _say(self) -> None:
        assert self.speaker is not None
        self._timer = None
        with suppress(Rejected):  # it is said with what comes behind it
            self.speaker.flush()

    def told(self, event: Event) -> None:
        match event:
            case Sound(start, pcm):
                self._tell(start + len(pcm))
                self._line.sound(pcm, self._outlet, self._chunk(), self._name)
            case Words(words) if self._timed:
                self._timeline.add(spans(words))
            case Flushed(id=number, samples=samples):
                self._tell(samples)
                self._line.border(self._outlet, self._chunk(), self._name)
                if number is not None:
                    self._line.send(FlushDone(self._name, number), self._name)
                    self._flush = number + 1
            case Ended("done"):
                self._line.send(Done(self._name))
                self._over(self._name)
            case Ended("failed", error=Rejected() as why):
                self.still()
                self._line.send(_problem(why, self._name))
                self._over(self._name)
            case _:
                pass

    def _tell(self, end: int) -> None:
        """Words that begin before sample `end`."""
        if told := self._timeline.take(end):
            words = [each.text.strip() for each in told]
            starts, ends = ([round(at / self._rate, 3) for at in each] for each in zip(*_borders(told), strict=True))
            self._line.send(Timestamps(self._name, WordTimes(words, starts, ends), self._flush), self._name)

    def _chunk(self) -> Callable[[bytes], Chunk]:
        """What makes a message of the sound that comes now."""
        now = time.monotonic()
        step, self._last = round((now - self._last) * 1000, 1), now
        return partial(Chunk, self._name, flush_id=self._flush, step_time=step)


def _borders(told: list[Any]) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in told]


def _problem(why: Rejected, context: str | UnsetType) -> Problem:
    status = 404 if why.code.endswith("_not_found") else 400
    status = 503 if why.code in ("loading", "session_limit_reached") else status
    status = 500 if why.code in OURS else status
    status = 503 if why.code in PASSING | FULL else status
    return Problem("Invalid request" if status < 500 else "Failed", why.message, why.code, why.param, status, context)


class CartesiaSocket:
    """One connection."""

    idle_seconds = 300.0

    def __init__(self, line: Line, cards: Mapping[str, Card]) -> None:
        self._line = line
        self._cards = cards
        self._contexts: dict[str, Voicing] = {}
        self._named: str | UnsetType = UNSET  # context of the message that is being taken

    @property
    def busy(self) -> bool:
        return bool(self._contexts)

    def idle(self) -> None:
        self._line.end(1000, "idle")

    def gone(self) -> None:
        for each in list(self._contexts.values()):
            each.cancel()

    def refuse(self, why: Rejected) -> None:
        if isinstance(self._named, str):
            self._stop(self._named)
        self._line.send(_problem(why, self._named))

    async def take(self, frame: str) -> None:
        self._named = UNSET
        tree = tree_of(frame)
        name = tree.get("context_id")
        self._named = name if isinstance(name, str) else UNSET
        if "cancel" in tree:
            self._cancel(message_of(tree, Cancel))
            return
        given = message_of(tree, Input)
        voicing = self._contexts.get(given.context_id)
        if voicing is None:
            voicing = await self._open(given)
        else:
            self._same(voicing.first, given)
        voicing.write(given)

    async def _open(self, given: Input) -> Voicing:
        for name, value in (("voice", given.voice), ("output_format", given.output_format)):
            if value is None:
                raise Rejected(f"Missing required parameter: '{name}'.", code="missing_required_parameter", param=name)
        assert given.voice is not None
        assert given.output_format is not None
        if len(self._contexts) >= MOST_CONTEXTS:
            text = f"At most {MOST_CONTEXTS} contexts may be open at once."
            raise Rejected(text, code="too_many_contexts", param="context_id")
        said = speaking(self._cards, given.model_id, "model_id")
        shape = _shape(given.output_format)
        if given.add_timestamps:
            asked_aligned(said.offer, "add_timestamps")
        if given.add_phoneme_timestamps:
            text = "Times of phonemes are not told."
            raise Rejected(text, code="unsupported_value", param="add_phoneme_timestamps")
        config = given.generation_config or Generation()
        speed = config.speed if config.speed is not None else _SPEEDS.get(given.speed or "")
        settings = settings_of(
            said.offer,
            voice=given.voice.id,
            speed=speed,
            seed=config.seed,
            voice_param="voice.id",
            speed_param="generation_config.speed" if config.speed is not None else "speed",
        )
        voicing = Voicing(self._line, said, given, shape, self._over)
        voicing.speaker = await self._line.speaker(said, settings, voicing.told)
        self._contexts[given.context_id] = voicing
        return voicing

    def _same(self, first: Input, given: Input) -> None:
        """What a context is said with can not change. Raises Rejected."""
        for name in ("model_id", "voice", "output_format"):
            now = getattr(given, name)
            if now and now != getattr(first, name):
                raise Rejected(f"'{name}' of a context can not change.", param=name)

    def _cancel(self, message: Cancel) -> None:
        if message.cancel and self._stop(message.context_id):
            self._line.send(Done(message.context_id, 499))

    def _stop(self, name: str) -> bool:
        """Nothing more of a context → whether there was one."""
        voicing = self._contexts.pop(name, None)
        if voicing is not None:
            voicing.cut()
        return voicing is not None

    def _over(self, name: str) -> None:
        self._contexts.pop(name, None)


def _shape(given: Format) -> Shape:
    if given.encoding in ("pcm_mulaw", "pcm_alaw") and given.sample_rate != 8000:
        text = f"sample_rate of {given.encoding} must be 8000, not {given.sample_rate}."
        raise Rejected(text, param="output_format.sample_rate")
    return Shape(_CODINGS[given.encoding], given.sample_rate)


async def cartesia(request: web.Request) -> web.StreamResponse:
    """The route."""
    allowed(request, key_for(request, header="X-API-Key", query=("api_key", "access_token")))
    cards = request.app[SERVER].cards
    return await converse(request, "cartesia", lambda line: CartesiaSocket(line, cards))
