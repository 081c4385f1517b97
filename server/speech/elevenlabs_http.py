"""ElevenLabs' HTTP routes: the sound of a text, whole or as it is made, alone or with the times of its characters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from media.codecs import CONTENT_TYPES, encode
from media.frames import from_bytes
from models.registry import Speech as Offer
from mstar.errors import Rejected
from server.door import SERVER, account_of, refusal
from server.http.leaving import while_connected
from server.limits import Limited
from server.security import Refusal
from server.speech.context import Word
from server.speech.elevenlabs_wire import Query, SpeechBody, TimedAudio, characters_of, detail, shape_of
from server.speech.entry import allowed, body_of, key_for, session, with_tasks
from server.speech.offers import asked_aligned, settings_of, speaking
from server.speech.saying import Saying
from server.speech.sound import Shape
from server.speech.streaming import stream_pieces
from server.speech.timing import Timeline, characters
from server.speech.wire import json_text, message_of, query_of


async def speech(request: web.Request) -> web.StreamResponse:
    """`POST /v1/text-to-speech/{voice}` and its siblings `/stream`, `/with-timestamps`, `/stream/with-timestamps`."""
    try:
        return await _speech(request)
    except Refusal as why:
        answer = web.json_response(detail(Rejected(why.message, code=why.code, param=why.param)), status=why.status)
        if why.retry_after is not None:
            answer.headers["Retry-After"] = str(why.retry_after)
        return answer
    except Limited as why:
        answer = web.json_response(detail(why), status=429)
        answer.headers["Retry-After"] = str(why.retry_after)
        return answer
    except Rejected as why:
        meant = refusal(why)
        status = 404 if why.code in ("voice_not_found", "model_not_found") else meant.status
        answer = web.json_response(detail(why), status=status)
        if meant.retry_after is not None:
            answer.headers["Retry-After"] = str(meant.retry_after)
        return answer


async def _speech(request: web.Request) -> web.StreamResponse:
    server = request.app[SERVER]
    allowed(request, key_for(request, header="xi-api-key"))
    query = query_of(request.query, Query)
    body = message_of(await body_of(request), SpeechBody)
    said = speaking(server.cards, body.model_id or query.model_id, "model_id")
    timed = request.path.endswith("/with-timestamps")
    if timed:
        asked_aligned(said.offer, "with-timestamps")
    settings = settings_of(
        said.offer,
        voice=request.match_info["voice"],
        speed=body.voice_settings.speed if body.voice_settings is not None else None,
        seed=body.seed if body.seed is not None else query.seed,
        voice_param="voice_id",
        speed_param="voice_settings.speed",
    )
    shape = shape_of(query.output_format)
    if not body.text.strip():
        raise Rejected("'text' holds no text.", code="empty_text", param="text")
    streamed = "/stream" in request.path.removeprefix(f"/v1/text-to-speech/{request.match_info['voice']}")
    made = Shape("pcm", shape.rate) if shape.coding == "wav" and not streamed else shape  # a file tells its length
    account = account_of(request)
    async with session(server, said, "elevenlabs", account) as runtime:

        async def work(group: asyncio.TaskGroup) -> web.StreamResponse:
            saying = Saying(runtime, said.offer, settings, made, group)
            try:
                account.write(len(body.text))
                saying.say(body.text)
                if streamed:
                    return await _stream(request, saying, said.offer, timed=timed)
                return await _whole(saying, said.offer, shape, timed=timed)
            finally:
                saying.cancel()

        return await while_connected(request, with_tasks(work))


def _nothing() -> Rejected:
    return Rejected("Nothing in 'text' can be said.", code="no_speech", param="text")


def _type(shape: Shape) -> str:
    assert shape.coding != "f32"
    return CONTENT_TYPES[shape.coding]


async def _whole(saying: Saying, offer: Offer, shape: Shape, *, timed: bool) -> web.Response:
    sound = b""
    words: list[Word] = []
    async for piece in saying.spoken():
        sound += piece.sound
        words += piece.words
    if not sound:
        raise _nothing()
    if shape.coding == "wav":
        sound = encode("wav", from_bytes(sound), shape.rate)
    if not timed:
        return web.Response(body=sound, content_type=_type(shape))
    times = characters_of(characters(words), offer.rate)
    return web.Response(body=json_text(TimedAudio(sound, times, times)), content_type="application/json")


async def _lines(saying: Saying, offer: Offer) -> AsyncIterator[bytes]:
    """Pieces of sound with the characters that begin in them, as `TimedAudio` in one line each."""
    timeline = Timeline()
    async for piece in saying.spoken():
        timeline.add(characters(piece.words))
        if piece.sound:
            times = characters_of([each.cut(piece.samples) for each in timeline.take(piece.samples)], offer.rate)
            yield json_text(TimedAudio(piece.sound, times, times)) + b"\n"


async def _stream(request: web.Request, saying: Saying, offer: Offer, *, timed: bool) -> web.StreamResponse:
    pieces = _lines(saying, offer) if timed else aiter(saying)
    first = await anext(pieces, None)
    if first is None:
        raise _nothing()
    content_type = "application/json" if timed else _type(saying.shape)
    return await stream_pieces(request, {"Content-Type": content_type}, first, pieces)
