"""A thousand clients that cancel or hang up in the middle: nothing of them stays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.clients.conftest import ROOT, Serving, serving
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


async def leave(server: Serving, visits: int) -> None:
    """So many visits, some at once; afterwards the server holds what it held."""
    baseline = held(server)
    draw = random.Random(5)
    gate = asyncio.Semaphore(TOGETHER)

    async def one(http: aiohttp.ClientSession) -> None:
        async with gate:
            await visit(http, server, draw)

    async with aiohttp.ClientSession() as http:
        await asyncio.gather(*(one(http) for _ in range(visits)))
    assert await asyncio.to_thread(settles, server, baseline)


async def test_random_cancels_and_hang_ups_leave_nothing(toy_server: Serving) -> None:
    await leave(toy_server, VISITS)


@pytest.fixture(scope="module")
def voice(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> Iterator[Serving]:
    yield from serving("voice", "--placement", str(ROOT / "models" / "voice" / "placement-speech.yaml"))


@pytest.mark.slow
async def test_a_real_voice_that_is_cancelled_and_left_keeps_nothing(voice: Serving) -> None:
    """Afterwards a text sounds as it did before."""
    before = await spoken(voice)
    await leave(voice, VISITS)
    assert await spoken(voice) == before


async def spoken(server: Serving) -> bytes:
    body = {"input": "All is well, and nobody is waiting.", "response_format": "pcm", "seed": 3}
    async with aiohttp.ClientSession() as http, http.post(f"{server.url}/v1/audio/speech", json=body) as answer:
        assert answer.status == 200
        return await answer.read()
