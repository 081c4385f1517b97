"""A thousand clients that cancel or hang up in the middle: nothing of them stays."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import aiohttp

from tests.clients.conftest import Serving
from tests.clients.speech import held, settles

VISITS = 1000
TOGETHER = 16
FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
CARTESIA = {"model_id": "sonic", "voice": {"mode": "id", "id": "default"}, "output_format": FORMAT}
TEXT = "hello weather " * 100

# address, what makes it speak, what stops it
WAYS: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
    (
        "/v1/audio/speech/stream",
        [
            {"type": "session.config", "response_format": "pcm", "stream_audio": True},
            {"type": "input.text", "text": TEXT},
            {"type": "input.done"},
        ],
        {"type": "input.cancel"},
    ),
    (
        "/v1/text-to-speech/default/multi-stream-input?output_format=pcm_24000",
        [{"text": TEXT, "context_id": "a"}, {"text": TEXT, "context_id": "b", "flush": True}],
        {"context_id": "a", "close_context": True},
    ),
    (
        "/tts/websocket",
        [{"context_id": "a", "transcript": TEXT, **CARTESIA}, {"context_id": "b", "transcript": TEXT, **CARTESIA}],
        {"context_id": "a", "cancel": True},
    ),
    ("/v1/speak", [{"type": "Speak", "text": TEXT}, {"type": "Flush"}], {"type": "Clear"}),
    ("/v0/tts/stream/input?format_type=pcm", [{"text": TEXT}, {"flush": True}], {"close": True}),
]


async def visit(http: aiohttp.ClientSession, server: Serving, draw: random.Random) -> None:
    path, begin, stop = draw.choice(WAYS)
    async with http.ws_connect(server.url + path) as socket:
        for message in begin[: draw.randrange(1, len(begin) + 1)]:
            await socket.send_json(message)
        for _ in range(draw.randrange(3)):
            try:
                await asyncio.wait_for(socket.receive(), 0.2)
            except TimeoutError:
                break
        if draw.random() < 0.5:
            await socket.send_json(stop)
        if draw.random() < 0.5:  # without a goodbye
            assert socket._response.connection is not None
            transport = socket._response.connection.transport
            assert isinstance(transport, asyncio.Transport)
            transport.abort()


async def test_random_cancels_and_hang_ups_leave_nothing(toy_server: Serving) -> None:
    baseline = held(toy_server)
    draw = random.Random(5)
    gate = asyncio.Semaphore(TOGETHER)

    async def one(http: aiohttp.ClientSession) -> None:
        async with gate:
            await visit(http, toy_server, draw)

    async with aiohttp.ClientSession() as http:
        await asyncio.gather(*(one(http) for _ in range(VISITS)))
    assert await asyncio.to_thread(settles, toy_server, baseline)
