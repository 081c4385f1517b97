"""Clients that say anything in any order, read slowly or not at all and go at any moment: the server is as before."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import aiohttp

from tests.clients.conftest import Serving
from tests.clients.speech import held, settles

VISITS, TOGETHER = 240, 24
TEXTS = (
    "", " ", "\n\n", "hello weather yes ", "yes. no! stop? ", "🙂🙂", "\ud83d", "\ude42", "x" * 500, "```\ncode\n",
    "<!-- ", "\u200b", "e\u0301" * 30, "\x00", "日本語。はい、", "hello " * 200, "\ud800\ud800", "'\"\\", "0" * 400,
    "a" * 5000,
)  # fmt: skip
WRONG: tuple[Any, ...] = (
    0, -1, 2**31, 2**63, 2**70, 1e308, 0.25, float("nan"), float("inf"), 10**400, "7", True, None, [], {}, "\ud83d",
)  # fmt: skip
RAW = ("", "nonsense", "[1]", "null", "{" * 2000, "[ " * 20000, '{"a":1e99999}')
FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}


class Draw(random.Random):
    """What a client says next."""

    def maybe(self, share: float, **fields: Any) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if self.random() < share}

    def text(self) -> Any:
        return self.choice(WRONG) if self.random() < 0.05 else self.choice(TEXTS)

    def vllm(self) -> dict[str, Any]:
        config = {"type": "session.config", **self.maybe(0.3, stream_audio=True, word_timestamps=True)}
        config |= self.maybe(0.2, response_format=self.choice(["wav", "pcm", "flac", "mp3", "opus", "x"]))
        config |= self.maybe(0.1, speed=self.choice(WRONG), seed=self.choice(WRONG), sample_rate=self.choice(WRONG))
        kinds = ["input.done", "input.cancel", "session.close", self.choice(WRONG)]
        other = {"type": self.choices(kinds, [6, 4, 1, 1])[0]}
        return self.choices([config, {"type": "input.text", "text": self.text()}, other], [3, 4, 4])[0]

    def elevenlabs(self) -> dict[str, Any]:
        name = self.choice(["a", "b", "c"]) if self.random() < 0.95 else self.choice(["d", "e", "f", *WRONG])
        asked = self.maybe(0.12, flush=True, close_context=True) | self.maybe(0.02, close_socket=True)
        return self.maybe(0.9, text=self.text(), context_id=name) | asked

    def cartesia(self) -> dict[str, Any]:
        name = self.choice("ab") if self.random() < 0.5 else f"c{self.randrange(70)}"
        if self.random() < 0.2:
            return {"context_id": name, "cancel": self.choice([True, True, False, *WRONG])}
        voice = {"mode": "id", "id": "default"}
        said = {
            "context_id": name,
            "transcript": self.text(),
            "model_id": "toy",
            "voice": voice,
            "output_format": FORMAT,
        }
        wrong = self.maybe(0.03, speed=self.choice(WRONG), max_buffer_delay_ms=self.choice([0, 1, *WRONG]))
        return said | self.maybe(0.6, **{"continue": True}) | self.maybe(0.2, flush=True) | wrong

    def deepgram(self) -> dict[str, Any]:
        kinds = ["Speak", "Flush", "Clear", "Close"]
        return {"type": self.choices(kinds, [12, 4, 4, 1])[0], "text": self.text()}

    def hume(self) -> dict[str, Any]:
        wrong = self.maybe(0.05, close=True, speed=self.choice(WRONG), trailing_silence=self.choice([0.1, *WRONG]))
        return self.maybe(0.8, text=self.text()) | self.maybe(0.2, flush=True) | wrong

    def raw(self, say: Callable[[], dict[str, Any]]) -> str | bytes:
        kind = self.random()
        if kind < 0.02:
            return self.choice([b"", b"\x00", b"{}"])
        return self.choice(RAW) if kind < 0.04 else json.dumps(say())


def ways(draw: Draw) -> list[tuple[str, Callable[[], dict[str, Any]]]]:
    speech = "/v1/text-to-speech/default"
    coded = draw.choice(["pcm_24000", "mp3_44100_128", "opus_48000_64", "ulaw_8000"])
    return [
        ("/v1/audio/speech/stream", draw.vllm),
        (f"{speech}/stream-input?output_format={coded}", draw.elevenlabs),
        (f"{speech}/multi-stream-input?output_format={coded}", draw.elevenlabs),
        ("/tts/websocket", draw.cartesia),
        ("/v1/speak?encoding=mulaw", draw.deepgram),
        (f"/v0/tts/stream/input?format_type={draw.choice(['pcm', 'mp3', 'wav'])}&no_binary=true", draw.hume),
    ]


async def visit(http: aiohttp.ClientSession, server: Serving, draw: Draw) -> None:
    path, say = draw.choice(ways(draw))
    async with http.ws_connect(server.url + path, max_msg_size=0) as socket:
        reading = asyncio.create_task(read(socket)) if draw.random() < 0.7 else None
        try:
            for _ in range(draw.choice([1, 3, 10, 40, 80])):
                given = draw.raw(say)
                await (socket.send_bytes(given) if isinstance(given, bytes) else socket.send_str(given))
            if reading is not None and draw.random() < 0.3:
                await asyncio.wait({reading}, timeout=0.2)
            if draw.random() < 0.4 and socket._response.connection is not None:  # without a goodbye
                transport = socket._response.connection.transport
                assert isinstance(transport, asyncio.Transport)
                transport.abort()
        except (ConnectionError, aiohttp.ClientError):  # the server had enough
            pass
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)


async def read(socket: aiohttp.ClientWebSocketResponse) -> None:
    async for _ in socket:
        pass


async def post(http: aiohttp.ClientSession, server: Serving, draw: Draw) -> None:
    """A request that may be given up; nothing is the server's fault."""
    speech = "/v1/text-to-speech/default"
    path = draw.choice(["/v1/audio/speech", speech, f"{speech}/stream", f"{speech}/stream/with-timestamps"])
    body = {"text": draw.text()} if path.startswith(speech) else {"input": draw.text()}
    body |= draw.maybe(0.2, seed=draw.choice(WRONG), voice_settings=draw.choice([{"speed": 2.0}, *WRONG]))
    patience = aiohttp.ClientTimeout(total=draw.choice([0.02, 0.2, 60]))
    try:
        async with http.post(server.url + path, data=json.dumps(body), timeout=patience) as answer:
            assert answer.status < 500, (path, body, await answer.text())
            async for _ in answer.content.iter_any():
                if draw.random() < 0.1:
                    break
    except (TimeoutError, ConnectionError, aiohttp.ClientError):
        pass


def failed(server: Serving) -> list[str]:
    """Connections that ended by a fault of the server."""
    return [line for line in server.get("/metrics")[1].splitlines() if line.startswith("mstar_sessions_failed_total")]


async def test_whatever_they_say_nothing_fails_and_nothing_is_left(toy_server: Serving) -> None:
    baseline, faults = held(toy_server), failed(toy_server)
    draw, gate = Draw(7), asyncio.Semaphore(TOGETHER)

    async def one(http: aiohttp.ClientSession) -> None:
        async with gate:
            await (visit if draw.random() < 0.7 else post)(http, toy_server, draw)

    async with aiohttp.ClientSession() as http:
        await asyncio.gather(*(one(http) for _ in range(VISITS)))
    assert await asyncio.to_thread(settles, toy_server, baseline)
    assert failed(toy_server) == faults
