"""`WS /v1/speak` (Deepgram): text in, binary sound out, one after another; Flush, Clear, Close."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Literal

from aiohttp import web
from msgspec import Struct

from models.registry import Card
from mstar.errors import Rejected
from server.door import SERVER
from server.security import Refusal
from server.speech.context import Ended, Event, Flushed, Sound
from server.speech.driver import Speaker
from server.speech.entry import allowed, key_for
from server.speech.offers import Said, settings_of, speaking
from server.speech.socket import Line, converse
from server.speech.sound import Coding, Outlet, Shape
from server.speech.wire import Seed, message_of, query_of, tree_of

CONTEXT = "speak"
_CODINGS: dict[str, Coding] = {"linear16": "pcm", "mulaw": "pcmu", "alaw": "pcma"}
_RATES = {
    "linear16": (8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    "mulaw": (8000,),
    "alaw": (8000,),
}


class Query(Struct):
    """Fields of the address. `model` is a family, or one of its voices; the vendor's names mean the first of each."""

    model: str = ""
    encoding: Literal["linear16", "mulaw", "alaw"] = "linear16"
    sample_rate: int | None = None
    speed: float | None = None
    container: Literal["none"] = "none"
    seed: Seed | None = None


class Speak(Struct, tag_field="type", tag="Speak"):
    text: str


class Flush(Struct, tag_field="type", tag="Flush"):
    pass


class Clear(Struct, tag_field="type", tag="Clear"):
    pass


class Close(Struct, tag_field="type", tag="Close"):
    pass


Message = Speak | Flush | Clear | Close


class Metadata(Struct, tag_field="type", tag="Metadata"):
    request_id: str
    model_name: str
    model_uuid: str
    model_version: str = "1"


class Flushed_(Struct, tag_field="type", tag="Flushed"):  # noqa: N801 - the protocol's word is the context's, too
    """All sound of what was written before the Flush has been sent."""

    sequence_id: int


class Cleared(Struct, tag_field="type", tag="Cleared"):
    """No sound follows that was written before."""

    sequence_id: int


class Warning_(Struct, tag_field="type", tag="Warning"):  # noqa: N801 - Warning is taken
    """A message that was not understood or can not be done; the connection lives."""

    description: str
    code: str
    param: str | None = None


def wanted(cards: Mapping[str, Card], raw: Mapping[str, str]) -> tuple[Said, dict[str, Any], Shape]:
    """Family, settings and format of an address. Raises Rejected."""
    query = query_of(raw, Query)
    voices = {
        voice: name for name, card in reversed(list(cards.items())) if card.speech for voice in card.speech.voices
    }
    if query.model in voices and query.model not in cards:
        said, voice = speaking(cards, voices[query.model]), query.model
    else:
        said, voice = speaking(cards, query.model), ""
    rate = query.sample_rate or (24_000 if query.encoding == "linear16" else 8000)
    if rate not in _RATES[query.encoding]:
        known = ", ".join(str(each) for each in _RATES[query.encoding])
        raise Rejected(f"sample_rate of {query.encoding} can be {known}; not {rate}.", param="sample_rate")
    settings = settings_of(said.offer, voice=voice, speed=query.speed, seed=query.seed)
    return said, settings, Shape(_CODINGS[query.encoding], rate)


class DeepgramSocket:
    """One connection."""

    idle_seconds = 600.0

    def __init__(self, line: Line, said: Said, settings: Mapping[str, Any], shape: Shape) -> None:
        self._line = line
        self._said = said
        self._settings = settings
        self._shape = shape
        self._speaker: Speaker | None = None
        self._outlet = Outlet(said.offer.rate, shape)
        self._sequence = 0
        self._closing = False
        request, model = (secrets.token_hex(16) for _ in range(2))
        line.send(Metadata(request, said.family, model))

    @property
    def busy(self) -> bool:
        return self._speaker is not None and not self._speaker.context.idle

    def idle(self) -> None:
        self._line.end(1011, "idle")

    def gone(self) -> None:
        if self._speaker is not None:
            self._speaker.cancel()

    def refuse(self, why: Rejected) -> None:
        self._line.send(Warning_(why.message, why.code, why.param))

    async def take(self, frame: str) -> None:
        message: Message = message_of(tree_of(frame), Message)  # type: ignore[arg-type]
        if self._closing:
            return
        match message:
            case Speak(text):
                (await self._open()).append(text)
            case Flush():
                (await self._open()).flush(0)
            case Clear():
                self._clear()
            case Close():
                self._closing = True
                (await self._open()).end()

    async def _open(self) -> Speaker:
        if self._speaker is None:
            self._outlet = Outlet(self._said.offer.rate, self._shape)
            self._speaker = await self._line.speaker(self._said, self._settings, self._told)
        return self._speaker

    def _clear(self) -> None:
        self.gone()
        sounding = self._speaker is not None
        self._speaker = None
        if rest := self._line.cut(CONTEXT, self._outlet if sounding else None):
            self._line.send_bytes(rest, "")
        self._line.send(Cleared(self._next()))

    def _next(self) -> int:
        number, self._sequence = self._sequence, self._sequence + 1
        return number

    def _told(self, event: Event) -> None:
        match event:
            case Sound(pcm=pcm):
                self._line.sound(pcm, self._outlet, bytes, CONTEXT)
            case Flushed(id=number):
                self._line.border(self._outlet, bytes, CONTEXT)
                if number is not None:
                    self._line.send(Flushed_(self._next()), CONTEXT)
            case Ended("done"):
                self._line.end(1000, "")
            case Ended("failed", error=Rejected() as why):
                self._speaker = None
                self.refuse(why)
                if self._closing:
                    self._line.end(1011, why.message)
            case _:
                pass


async def speak(request: web.Request) -> web.StreamResponse:
    """The route. Refusals before the upgrade are in the protocol's own form."""
    try:
        allowed(request, key_for(request))
        said, settings, shape = wanted(request.app[SERVER].cards, request.query)
    except Refusal as why:
        return _refused(why.status, why.code, why.message, why.param)
    except Rejected as why:
        return _refused(400, why.code, why.message, why.param)
    protocols = ("token", "bearer")

    def greet(line: Line) -> DeepgramSocket:
        return DeepgramSocket(line, said, settings, shape)

    return await converse(request, "deepgram", greet, said=said, subprotocols=protocols)


def _refused(status: int, code: str, message: str, param: str | None) -> web.Response:
    body = {"err_code": code, "err_msg": message, "param": param, "request_id": secrets.token_hex(16)}
    return web.json_response(body, status=status)
