"""`POST /v1/chat/completions`: a conversation in, its answer out, whole or as it is written, in text or spoken."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

import msgspec
from aiohttp import web
from msgspec import UNSET

from mstar.client import Session as Runtime
from mstar.errors import Rejected
from server.door import SERVER, account_of, authorised
from server.http.answering import Asked, Begun, Called, Delta, Finished, Said, Sounded, answered
from server.http.chat_wire import (
    Answer,
    AudioAnswer,
    AudioDelta,
    AudioOut,
    CalledFunction,
    ChatCompletion,
    ChatRequest,
    Choice,
    Chunk,
    ChunkChoice,
    FunctionDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from server.http.chat_wire import Delta as Told
from server.http.content import characters
from server.http.conversing import Spoken, asked_of, checked
from server.http.events import Events
from server.http.leaving import while_connected
from server.http.reading import message_in
from server.http.sampling import usage_of
from server.security import Refusal
from server.sessions import using
from server.speech.sound import Coding, Outlet, Shape, rate_for

SPOKEN: web.AppKey[Spoken] = web.AppKey("spoken", Spoken)
PCM_RATE = 24_000
"""Of `pcm16`."""
KEPT_SECONDS = 3600
"""How long a client may take a spoken answer's id for known; it is as long as there are not too many others."""


class _Send(Protocol):
    """Sends a chunk."""

    async def __call__(self, delta: Told | None, reason: str | None = None, usage: Usage | None = None) -> None: ...


class _Reply:
    """One answer on its way out: what all its forms have in common."""

    def __init__(self, request: web.Request, wanted: ChatRequest, model: str, asked: Asked) -> None:
        self.request = request
        self.wanted = wanted
        self.model = model
        self.id = f"chatcmpl-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.text = ""
        self.calls: list[ToolCall] = []
        self.audio = wanted.audio if asked.rate else None
        self.audio_id = f"audio_{secrets.token_hex(12)}"
        self.outlet = None if self.audio is None else Outlet(asked.rate, _shape(self.audio, asked.rate))

    @property
    def expires_at(self) -> int:
        return self.created + KEPT_SECONDS

    def called(self, said: Called) -> ToolCall:
        call = ToolCall(f"call_{secrets.token_hex(12)}", CalledFunction(said.name, said.arguments))
        self.calls.append(call)
        return call

    def keep(self) -> None:
        if self.audio is not None:
            self.request.app[SPOKEN].keep(self.audio_id, self.text)


def _shape(audio: AudioOut, rate: int) -> Shape:
    coding: Coding = "pcm" if audio.format == "pcm16" else audio.format
    return Shape(coding, PCM_RATE if coding == "pcm" else rate_for(coding, rate, None))


async def chat(request: web.Request) -> web.StreamResponse:
    """The answer. Refused as JSON before any of it."""
    server = request.app[SERVER]
    authorised(request)
    wanted = await message_in(request, ChatRequest)
    card = server.card(wanted.model)
    model = wanted.model or next(iter(server.cards))
    assert card.conversation is not None
    checked(wanted, card)
    account = account_of(request)
    async with using(request, model, "chat") as runtime:
        account.write(sum(characters(each.content) for each in wanted.messages))

        async def work() -> web.StreamResponse:
            asked = await asked_of(wanted, card, runtime, account, request.app[SPOKEN])
            reply = _Reply(request, wanted, model, asked)
            return await _answer(reply, runtime, asked)

        return await while_connected(request, work())


async def _answer(reply: _Reply, runtime: Runtime, asked: Asked) -> web.StreamResponse:
    async with aclosing(answered(runtime, asked)) as events:
        return await (_stream(reply, events) if reply.wanted.stream else _whole(reply, events))


async def _whole(reply: _Reply, events: AsyncGenerator[Said]) -> web.Response:
    sound = b""
    finished: Finished | None = None
    async for said in events:
        match said:
            case Delta(text):
                reply.text += text
            case Called():
                reply.called(said)
            case Sounded(pcm) if reply.outlet is not None:
                sound += reply.outlet.feed(pcm)
            case Finished():
                finished = said
    assert finished is not None
    message = Answer("assistant", reply.text or (None if reply.calls else ""), None)
    if reply.audio is not None and reply.outlet is not None and not reply.calls:
        sound += reply.outlet.finish()
        message = Answer("assistant", None, None, AudioAnswer(reply.audio_id, sound, reply.expires_at, reply.text))
    if reply.calls:
        message.tool_calls = reply.calls
    reply.keep()
    choice = Choice(0, message, finished.reason)
    body = ChatCompletion(reply.id, "chat.completion", reply.created, reply.model, [choice], usage_of(finished.tokens))
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


async def _stream(reply: _Reply, said: AsyncGenerator[Said]) -> web.StreamResponse:
    assert isinstance(await anext(said), Begun)  # a refusal comes before any of the answer
    events = Events(reply.request)
    await events.open()
    options = reply.wanted.stream_options
    counted = options is not None and bool(options.include_usage)

    async def send(delta: Told | None, reason: str | None = None, usage: Usage | None = None) -> None:
        choices = [] if delta is None else [ChunkChoice(0, delta, reason)]
        told = usage if counted else UNSET
        await events.send(Chunk(reply.id, "chat.completion.chunk", reply.created, reply.model, choices, told))

    await send(_opening(reply))
    try:
        async for each in said:
            if isinstance(each, Finished):
                await _end(reply, each, send)
                if counted:
                    await send(None, usage=usage_of(each.tokens))
            elif (delta := _told(reply, each)) is not None:
                await send(delta)
    except (Rejected, Refusal) as why:
        await events.fail(why)
        return await events.close()
    reply.keep()
    return await events.close(b"[DONE]")


def _opening(reply: _Reply) -> Told:
    if reply.audio is None:
        return Told("assistant", "")
    return Told("assistant", audio=AudioDelta(reply.audio_id, transcript=""))


def _told(reply: _Reply, said: Said) -> Told | None:
    match said:
        case Delta(text):
            reply.text += text
            return Told(content=text) if reply.audio is None else Told(audio=AudioDelta(transcript=text))
        case Called():
            call = reply.called(said)
            function = FunctionDelta(call.function.arguments, call.function.name)
            return Told(tool_calls=[ToolCallDelta(len(reply.calls) - 1, call.id, call.type, function)])
        case Sounded(pcm) if reply.outlet is not None:
            sound = reply.outlet.feed(pcm)
            return Told(audio=AudioDelta(data=sound)) if sound else None
        case _:
            return None


async def _end(reply: _Reply, finished: Finished, send: _Send) -> None:
    if reply.outlet is not None:
        rest = reply.outlet.finish()
        if rest:
            await send(Told(audio=AudioDelta(data=rest)))
        await send(Told(audio=AudioDelta(expires_at=reply.expires_at)))
    await send(Told(), finished.reason)
