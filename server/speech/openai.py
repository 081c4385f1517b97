"""`POST /v1/audio/speech`: one text, its sound as it is made; `GET /v1/audio/voices`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from aiohttp import web
from msgspec import Meta, Struct

from media.codecs import CONTENT_TYPES, encode
from media.frames import from_bytes
from models.registry import Speech as Offer
from mstar.errors import Rejected
from server.door import SERVER, account_of
from server.http.leaving import while_connected
from server.sessions import bound_sending
from server.speech.context import MOST_TEXT
from server.speech.entry import allowed, body_of, family_for, key_for, session, with_tasks
from server.speech.offers import OPENAI_VOICES, settings_of
from server.speech.saying import Saying
from server.speech.sound import COMPRESSED, Shape, rate_for
from server.speech.streaming import stream_pieces
from server.speech.wire import Seed, json_text, message_of

PCM_RATE = 24_000
"""What clients of the API take headerless sound for."""
Coding = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]


class VoiceName(Struct, forbid_unknown_fields=True):
    """A voice as an object."""

    id: str


class SpeechRequest(Struct, forbid_unknown_fields=True):
    """The API's fields. Beside them: `seed`, `sample_rate`, and `stream: false` for a body with a length."""

    input: Annotated[str, Meta(max_length=MOST_TEXT)]
    model: str = ""
    voice: str | VoiceName = ""
    instructions: str | None = None
    response_format: Coding = "mp3"
    speed: float | None = None
    stream_format: Literal["audio", "sse"] = "audio"
    seed: Seed | None = None
    sample_rate: Annotated[int, Meta(ge=8000, le=48_000)] | None = None
    stream: bool = True


class Usage(Struct):
    """Tokens of the voice's language model; 0 of a voice that has none."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class SpeechAudioDelta(Struct, tag_field="type", tag="speech.audio.delta"):
    audio: bytes


class SpeechAudioDone(Struct, tag_field="type", tag="speech.audio.done"):
    usage: Usage
    finish_reason: str  # "stop", or "length" where the text was cut short


class Problem(Struct):
    code: str
    message: str
    param: str | None


class SpeechAudioError(Struct, tag_field="type", tag="speech.audio.error"):
    error: Problem


def shape_of(wanted: SpeechRequest, offer: Offer) -> Shape:
    """The format asked for; headerless sound is 24 kHz where no rate is asked for. Raises Rejected."""
    own = PCM_RATE if wanted.response_format == "pcm" else offer.rate
    return Shape(wanted.response_format, rate_for(wanted.response_format, own, wanted.sample_rate))


def headers_of(shape: Shape) -> dict[str, str]:
    """What the sound is like."""
    assert shape.coding != "f32"
    told = {"Content-Type": CONTENT_TYPES[shape.coding], "X-Sample-Rate": str(shape.rate), "X-Channels": "1"}
    return told if shape.coding in COMPRESSED else {**told, "X-Bit-Depth": "16"}


async def speech(request: web.Request) -> web.StreamResponse:
    """The sound of a text, chunk by chunk. Refused as JSON before any sound."""
    server = request.app[SERVER]
    allowed(request, key_for(request))
    wanted = message_of(await body_of(request), SpeechRequest)
    said = family_for(request, wanted.model)
    voice = wanted.voice if isinstance(wanted.voice, str) else wanted.voice.id
    settings = settings_of(said.offer, voice=voice, speed=wanted.speed, seed=wanted.seed)
    shape = shape_of(wanted, said.offer)
    framed = not wanted.stream and wanted.response_format in ("wav", "flac")  # its header tells the true length
    made = Shape("pcm", shape.rate) if framed and wanted.stream_format == "audio" else shape
    if not wanted.input.strip():
        raise Rejected("'input' holds no text.", code="empty_input", param="input")
    account = account_of(request)
    async with session(server, said, "speech", account) as runtime:

        async def work(group: asyncio.TaskGroup) -> web.StreamResponse:
            saying = Saying(runtime, said.offer, settings, made, group)
            try:
                account.write(len(wanted.input))
                saying.say(wanted.input)
                return await _answer(request, wanted, saying, shape)
            finally:
                saying.cancel()

        return await while_connected(request, with_tasks(work))


async def _answer(request: web.Request, wanted: SpeechRequest, saying: Saying, shape: Shape) -> web.StreamResponse:
    pieces = aiter(saying)
    first = await anext(pieces, None)
    if first is None:
        raise Rejected("Nothing in 'input' can be said.", code="no_speech", param="input")
    if wanted.stream_format == "sse":
        return await _events(request, pieces, first, saying)
    if not wanted.stream:
        whole = first + b"".join([piece async for piece in pieces])
        if wanted.response_format in ("wav", "flac"):
            whole = encode(wanted.response_format, from_bytes(whole), saying.shape.rate)
        return web.Response(body=whole, headers=headers_of(shape))
    return await stream_pieces(request, headers_of(shape), first, pieces)


async def _events(
    request: web.Request, pieces: AsyncIterator[bytes], first: bytes, saying: Saying
) -> web.StreamResponse:
    headers = {**headers_of(saying.shape), "Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    answer = web.StreamResponse(headers=headers)
    await answer.prepare(request)
    bound_sending(request)
    last: SpeechAudioDone | SpeechAudioError
    await answer.write(_event(SpeechAudioDelta(first)))
    try:
        async for piece in pieces:
            await answer.write(_event(SpeechAudioDelta(piece)))
        read, made = saying.tokens
        last = SpeechAudioDone(Usage(read, made, read + made), saying.reason)
    except Rejected as why:
        last = SpeechAudioError(Problem(why.code, why.message, why.param))
    await answer.write(_event(last))
    await answer.write_eof()
    return answer


def _event(message: SpeechAudioDelta | SpeechAudioDone | SpeechAudioError) -> bytes:
    return b"data: " + json_text(message) + b"\n\n"


async def voices(request: web.Request) -> web.Response:
    """The voices of a family (`?model=`), and the names of others that stand for them."""
    allowed(request, key_for(request))
    said = family_for(request, request.query.get("model"))
    own = said.offer.voices
    rows = [{"id": name, "object": "voice", "name": name, "model": said.family} for name in own]
    aliases = {name: own[at % len(own)] for at, name in enumerate(OPENAI_VOICES) if name not in own}
    return web.json_response({"object": "list", "data": rows, "voices": list(own), "aliases": aliases})
