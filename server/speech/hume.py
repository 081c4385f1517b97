"""`WS /v0/tts/stream/input` (Hume): text in, chunks of snippets out. A snippet is what lies between two flushes."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from aiohttp import web
from msgspec import Meta, Struct

from media.codecs import encode
from media.frames import from_bytes
from mstar.errors import Rejected
from server.door import SERVER
from server.security import Refusal
from server.speech.context import Ended, Event, Flushed, Sound, Words
from server.speech.driver import Speaker
from server.speech.entry import allowed, key_for
from server.speech.offers import Said, asked_aligned, settings_of, speaking
from server.speech.socket import Line, converse
from server.speech.sound import Outlet, Shape
from server.speech.timing import Timeline, spans
from server.speech.wire import Seed, message_of, query_of, tree_of

CONTEXT = "speech"
RATE = 48_000
"""Of all that the vendor's service sends."""


class Query(Struct):
    """Fields of the address; `instant_mode`, `version`, `temperature`, `context_generation_id` have no effect here."""

    format_type: Literal["mp3", "pcm", "wav"] = "mp3"
    no_binary: bool = False
    strip_headers: bool = False
    model: str = ""
    seed: Seed | None = None


class Voice(Struct):
    """By `id` or `name`."""

    id: str | None = None
    name: str | None = None


class Publish(Struct):
    """A client message. A voice or speed holds for the snippets that begin with or after it."""

    text: str | None = None
    voice: Voice | None = None
    description: str | None = None
    speed: float | None = None
    trailing_silence: Annotated[float, Meta(ge=0, le=5)] | None = None
    flush: bool | None = None
    close: bool | None = None


class AudioOut(Struct, tag_field="type", tag="audio"):
    audio: bytes
    audio_format: str
    chunk_index: int
    generation_id: str
    is_last_chunk: bool
    request_id: str
    snippet_id: str
    text: str


class Interval(Struct):
    begin: int
    end: int


class Stamp(Struct):
    text: str
    time: Interval
    type: str = "word"


class TimestampOut(Struct, tag_field="type", tag="timestamp"):
    generation_id: str
    request_id: str
    snippet_id: str
    timestamp: Stamp


class Problem(Struct, tag_field="type", tag="error"):
    code: str
    message: str
    param: str | None


class _Snippet:
    """What lies between two flushes."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(16)
        self.text = ""
        self.silence = 0.0  # seconds behind it
        self.chunks = 0


class HumeSocket:
    """One connection."""

    idle_seconds = 60.0

    def __init__(self, line: Line, said: Said, query: Query, stamps: bool) -> None:
        self._line = line
        self._said = said
        self._query = query
        self._stamps = stamps
        self._alone = not query.strip_headers and query.format_type != "pcm"  # each chunk a file of its own
        self._outlet = Outlet(said.offer.rate, Shape("pcm" if self._alone else query.format_type, RATE))
        self._request, self._generation = (secrets.token_hex(16) for _ in range(2))
        self._speaker: Speaker | None = None
        self._settings = settings_of(said.offer, seed=query.seed)
        self._snippets: deque[_Snippet] = deque([_Snippet()])  # the first is being said, the last being written
        self._timeline = Timeline()
        self._closing = False

    @property
    def busy(self) -> bool:
        return self._speaker is not None and not self._speaker.context.idle

    def idle(self) -> None:
        self._line.end(1000, "idle")

    def gone(self) -> None:
        if self._speaker is not None:
            self._speaker.cancel()

    def refuse(self, why: Rejected) -> None:
        self._line.send(Problem(why.code, why.message, why.param))

    async def take(self, frame: str) -> None:
        if self._closing:
            return
        given = message_of(tree_of(frame), Publish)
        speaker = await self._open(given)
        if given.text:
            speaker.append(given.text)
            self._snippets[-1].text += given.text
        if given.trailing_silence:
            self._snippets[-1].silence = given.trailing_silence
        if given.flush or given.trailing_silence:
            speaker.context.check()
            self._snippets.append(_Snippet())
            speaker.flush(0)
        if given.close:
            self._closing = True
            speaker.end()

    async def _open(self, given: Publish) -> Speaker:
        """The context, with the voice and speed asked for. Raises Rejected."""
        settings = dict(self._settings)
        if given.voice is not None:
            settings["voice"] = settings_of(self._said.offer, voice=given.voice.id or given.voice.name)["voice"]
        if given.speed is not None:
            settings["speed"] = settings_of(self._said.offer, speed=given.speed)["speed"]
        if self._speaker is not None and settings != self._settings:
            if self.busy:
                text = "Voice and speed can change when everything is said."
                raise Rejected(text, code="speech_in_progress", param="voice")
            self._speaker.cancel()
            self._speaker = None
        self._settings = settings
        if self._speaker is None:
            self._speaker = await self._line.speaker(self._said, settings, self._told)
        return self._speaker

    # ------------------------------------------------------------------------------------------- out

    def _told(self, event: Event) -> None:
        match event:
            case Sound(start, pcm):
                self._stamp(start + len(pcm))
                self._send(self._outlet.feed(pcm))
            case Words(words) if self._stamps:
                self._timeline.add(spans(words))
            case Flushed(id=number):
                self._flushed(flushed=number is not None)
            case Ended("done"):
                self._line.end(1000, "")
            case Ended("failed", error=Rejected() as why):
                self._speaker = None
                self._snippets, self._timeline = deque([_Snippet()]), Timeline()
                self._outlet.forget()
                self.refuse(why)
                if self._closing:
                    self._line.end(1011, why.message)
            case _:
                pass

    def _flushed(self, *, flushed: bool) -> None:
        snippet = self._snippets[0]
        silence = np.zeros(round(snippet.silence * self._said.offer.rate), np.float32)
        rest = self._outlet.feed(silence) + (self._outlet.border() if flushed else self._outlet.finish())
        if snippet.chunks or rest:
            self._send(rest, last=True)
        if flushed:
            self._snippets.popleft()

    def _send(self, sound: bytes, *, last: bool = False) -> None:
        if not sound and not last:
            return
        snippet, form = self._snippets[0], self._query.format_type
        if self._alone and sound and form != "pcm":
            sound = encode(form, from_bytes(sound), RATE)
        if not self._query.no_binary:
            if sound:
                self._line.send_bytes(sound, CONTEXT)
        else:
            ids = self._generation, last, self._request, snippet.id, snippet.text
            self._line.send(AudioOut(sound, form, snippet.chunks, *ids), CONTEXT)
        snippet.chunks += 1

    def _stamp(self, end: int) -> None:
        snippet, rate = self._snippets[0], self._said.offer.rate
        for each in self._timeline.take(end):
            time = Interval(round(each.start * 1000 / rate), round(each.end * 1000 / rate))
            stamp = Stamp(each.text.strip(), time)
            self._line.send(TimestampOut(self._generation, self._request, snippet.id, stamp), CONTEXT)


def _stamped(said: Said, kinds: Sequence[str]) -> bool:
    """Whether word times are wanted. Raises Rejected for other times, and where the family can not tell."""
    if any(kind != "word" for kind in kinds):
        text = "Times of words are told, no others."
        raise Rejected(text, code="unsupported_value", param="include_timestamp_types")
    if kinds:
        asked_aligned(said.offer, "include_timestamp_types")
    return bool(kinds)


async def hume(request: web.Request) -> web.StreamResponse:
    """The route. Refused as HTTP before the upgrade."""
    try:
        allowed(request, key_for(request, header="X-Hume-Api-Key", query=("api_key", "access_token")))
        query = query_of(request.query, Query)
        said = speaking(request.app[SERVER].cards, query.model)
        stamps = _stamped(said, request.query.getall("include_timestamp_types", []))
    except Refusal as why:
        return _refused(why.status, why.code, why.message, why.param)
    except Rejected as why:
        return _refused(400, why.code, why.message, why.param)
    return await converse(request, "hume", lambda line: HumeSocket(line, said, query, stamps), said=said)


def _refused(status: int, code: str, message: str, param: str | None) -> web.Response:
    body: dict[str, Any] = {"code": code, "message": message, "param": param}
    return web.json_response(body, status=status)
