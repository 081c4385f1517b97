"""One text, one seed: the same samples through every protocol, however the text was cut; with real weights."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from tests.clients.conftest import Serving, serving
from tests.clients.raw import connected

TEXT = "Good evening, everybody. The train to Bath leaves at half past nine, and it is on time 🙂 today!"
SEED = 11
PIECES = [json.dumps(TEXT[at : at + 3]) for at in range(0, len(TEXT), 3)]
FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}


@pytest.fixture(scope="module")
def voice(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> Iterator[Serving]:
    yield from serving("voice")


async def texts(raw: Any) -> AsyncIterator[Any]:
    async for message in raw.socket:
        yield message.data if message.type is aiohttp.WSMsgType.BINARY else json.loads(message.data)


async def openai(server: Serving, seed: int = SEED, rate: int = 24_000) -> bytes:
    body = {"model": "voice", "voice": "alloy", "input": TEXT, "response_format": "pcm", "seed": seed}
    body["sample_rate"] = rate
    async with aiohttp.ClientSession() as http, http.post(f"{server.url}/v1/audio/speech", json=body) as answer:
        assert answer.status == 200
        return await answer.read()


async def vllm(server: Serving) -> bytes:
    config = {"type": "session.config", "response_format": "pcm", "stream_audio": True, "sample_rate": 24_000}
    async with connected(server, "/v1/audio/speech/stream") as raw:
        await raw.send({**config, "seed": SEED})
        for piece in PIECES:
            await raw.send(f'{{"type": "input.text", "text": {piece}}}')
        await raw.send({"type": "input.done"})
        heard = b""
        async for each in texts(raw):
            if isinstance(each, bytes):
                heard += each
            elif each["type"] == "session.done":
                return heard
    raise AssertionError("closed early")


async def elevenlabs(server: Serving) -> bytes:
    path = f"/v1/text-to-speech/default/stream-input?output_format=pcm_24000&seed={SEED}"
    async with connected(server, path) as raw:
        await raw.send({"text": " "})
        for piece in PIECES:
            if json.loads(piece) != " ":
                await raw.send(f'{{"text": {piece}}}')
        await raw.send({"text": ""})
        return b"".join([base64.b64decode(each.get("audio") or "") async for each in texts(raw)])


async def elevenlabs_http(server: Serving) -> bytes:
    path = f"/v1/text-to-speech/default/stream?output_format=pcm_24000&seed={SEED}"
    async with aiohttp.ClientSession() as http, http.post(server.url + path, json={"text": TEXT}) as answer:
        return await answer.read()


async def cartesia(server: Serving) -> bytes:
    async with connected(server, "/tts/websocket") as raw:
        given = {"context_id": "a", "model_id": "sonic-3", "voice": {"mode": "id", "id": "default"}}
        config = {"output_format": FORMAT, "generation_config": {"seed": SEED}}
        for piece in PIECES:
            await raw.send({**given, **config, "transcript": json.loads(piece), "continue": True})
        await raw.send({**given, **config, "transcript": ""})
        heard = b""
        async for each in texts(raw):
            heard += base64.b64decode(each.get("data", ""))
            if each["done"]:
                break
        return heard


async def deepgram(server: Serving) -> bytes:
    async with connected(server, f"/v1/speak?encoding=linear16&sample_rate=24000&seed={SEED}") as raw:
        for piece in PIECES:
            await raw.send(f'{{"type": "Speak", "text": {piece}}}')
        await raw.send({"type": "Close"})
        return b"".join([each async for each in texts(raw) if isinstance(each, bytes)])


async def hume(server: Serving) -> bytes:
    """At 48 kHz, the one rate that it has."""
    async with connected(server, f"/v0/tts/stream/input?format_type=pcm&seed={SEED}") as raw:
        for piece in PIECES:
            await raw.send(f'{{"text": {piece}}}')
        await raw.send({"close": True})
        return b"".join([each async for each in texts(raw) if isinstance(each, bytes)])


ALL = (openai, vllm, elevenlabs, elevenlabs_http, cartesia, deepgram)


async def test_equal_seeds_give_equal_bytes_through_every_protocol_alone_and_together(voice: Serving) -> None:
    whole = await openai(voice)
    assert len(whole) > 2 * 24_000 * 4
    for protocol in ALL[1:]:
        assert await protocol(voice) == whole, protocol.__name__
    together = await asyncio.gather(*(protocol(voice) for protocol in ALL))
    for protocol, heard in zip(ALL, together, strict=True):
        assert heard == whole, protocol.__name__
    assert await openai(voice, SEED + 1) != whole
    assert await hume(voice) == await openai(voice, rate=48_000)


async def test_the_sound_begins_at_once_and_its_rate_is_told(voice: Serving) -> None:
    body = {"input": TEXT, "response_format": "wav", "seed": SEED}
    async with aiohttp.ClientSession() as http, http.post(f"{voice.url}/v1/audio/speech", json=body) as answer:
        assert answer.headers["X-Sample-Rate"] == "22050"
        wav = await answer.read()
    assert int.from_bytes(wav[24:28], "little") == 22_050
    pcm = np.frombuffer(wav[44:], "<i2").astype(np.float64) / 32768
    first = int(np.flatnonzero(np.abs(pcm) >= 10 ** (-45 / 20))[0])
    assert first <= round(0.025 * 22_050)


async def test_speed_makes_it_shorter(voice: Serving) -> None:
    lengths = []
    for speed in (1.0, 2.0):
        body = {"input": TEXT, "response_format": "pcm", "seed": SEED, "speed": speed}
        async with aiohttp.ClientSession() as http, http.post(f"{voice.url}/v1/audio/speech", json=body) as answer:
            lengths.append(len(await answer.read()))
    assert 0.4 < lengths[1] / lengths[0] < 0.65


async def test_word_times_are_in_order_and_cover_the_sound(voice: Serving) -> None:
    path = "/v1/text-to-speech/default/with-timestamps?output_format=pcm_24000"
    async with aiohttp.ClientSession() as http, http.post(voice.url + path, json={"text": TEXT}) as answer:
        timed = await answer.json()
    seconds = len(base64.b64decode(timed["audio_base64"])) / 2 / 24_000
    starts, ends = (np.array(timed["alignment"][f"character_{at}_times_seconds"]) for at in ("start", "end"))
    assert TEXT.startswith("".join(timed["alignment"]["characters"]))
    assert (np.diff(starts) >= 0).all()
    assert (ends >= starts).all()
    assert starts[0] == 0
    assert abs(ends[-1] - seconds) < 0.05
