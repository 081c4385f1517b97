"""A language model that speaks, behind every protocol: small random weights, real processes, its codec on its own."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest

from tests.clients.conftest import ROOT, Serving, serving
from tests.clients.raw import connected
from tests.clients.speech import RATE, frame, frames, held, settles, sound

TEXT = "It works, <laugh> of course. All of it!"
SEED = 7
CARTESIA = {
    "context_id": "a",
    "model_id": "orpheus",
    "voice": {"mode": "id", "id": "leo"},
    "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE},
    "generation_config": {"seed": SEED},
}


def placed(name: str) -> Iterator[Serving]:
    file = ROOT / "models" / "orpheus" / f"placement{name}.yaml"
    yield from serving("orpheus", "--tiny", "--placement", str(file))


@pytest.fixture(scope="module")
def orpheus() -> Iterator[Serving]:
    yield from placed("-split")


async def by_openai(server: Serving, rate: int = RATE) -> bytes:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        said = await client.audio.speech.create(
            model="orpheus",
            voice="leo",
            input=TEXT,
            response_format="pcm",
            extra_body={"seed": SEED, "sample_rate": rate},
        )
        return said.content


async def by_vllm(server: Serving) -> bytes:
    async with connected(server, "/v1/audio/speech/stream") as raw:
        config = {"type": "session.config", "model": "orpheus", "voice": "leo", "response_format": "pcm", "seed": SEED}
        await raw.send({**config, "stream_audio": True})
        for at in range(0, len(TEXT), 5):
            await raw.send({"type": "input.text", "text": TEXT[at : at + 5]})
        await raw.send({"type": "input.done"})
        return sound(await frames(raw, "session.done")).tobytes()


async def by_elevenlabs(server: Serving) -> bytes:
    async with connected(server, f"/v1/text-to-speech/leo/stream-input?output_format=pcm_{RATE}&seed={SEED}") as raw:
        for text in (" ", TEXT + " ", ""):
            await raw.send({"text": text})
        found: list[Any] = []
        while not (found and found[-1].get("isFinal")):
            found.append(await frame(raw))
        return sound(found, "audio").tobytes()


async def by_cartesia(server: Serving) -> bytes:
    async with connected(server, "/tts/websocket") as raw:
        await raw.send({**CARTESIA, "transcript": TEXT})
        return sound(await frames(raw, "done"), "data").tobytes()


async def by_deepgram(server: Serving) -> bytes:
    address = f"/v1/speak?model=leo&encoding=linear16&sample_rate={RATE}&seed={SEED}"
    async with connected(server, address) as raw:
        await raw.send({"type": "Speak", "text": TEXT})
        await raw.send({"type": "Flush"})
        return sound(await frames(raw, "Flushed")).tobytes()


async def by_hume(server: Serving) -> bytes:
    async with connected(server, f"/v0/tts/stream/input?format_type=pcm&no_binary=true&seed={SEED}") as raw:
        await raw.send({"text": TEXT, "voice": {"name": "leo"}, "flush": True})
        found: list[Any] = []
        while not (found and found[-1].get("is_last_chunk")):
            found.append(await frame(raw))
        return b"".join(base64.b64decode(each["audio"]) for each in found)


WAYS = (by_openai, by_vllm, by_elevenlabs, by_cartesia, by_deepgram)


async def test_every_protocol_says_the_same_alone_and_together(orpheus: Serving) -> None:
    baseline = held(orpheus)
    alone = await by_openai(orpheus)
    assert len(alone) > RATE  # half a second and more
    assert np.abs(np.frombuffer(alone, "<i2")).max() > 1000
    for way, heard in zip(WAYS, await asyncio.gather(*(way(orpheus) for way in WAYS)), strict=True):
        assert heard == alone, way.__name__
    assert await by_hume(orpheus) == await by_openai(orpheus, 2 * RATE)
    assert await asyncio.to_thread(settles, orpheus, baseline)


@pytest.mark.parametrize("name", ["", pytest.param("-prefill", marks=pytest.mark.slow)])
async def test_every_placement_says_the_same(orpheus: Serving, name: str) -> None:
    alone = await by_openai(orpheus)
    for server in placed(name):
        for heard in await asyncio.gather(*(way(server) for way in (by_cartesia, by_deepgram, by_vllm))):
            assert heard == alone


async def test_what_the_family_can_not_is_refused_by_its_field(orpheus: Serving) -> None:
    async with aiohttp.ClientSession() as http:
        for field, value in (("voice", "joe"), ("speed", 1.5)):
            body = {"model": "orpheus", "input": TEXT, field: value}
            async with http.post(f"{orpheus.url}/v1/audio/speech", json=body) as answer:
                assert answer.status == 400
                assert json.loads(await answer.read())["error"]["param"] == field
        async with http.get(f"{orpheus.url}/v1/audio/voices") as answer:
            assert "tara" in (await answer.json())["voices"]
    async with connected(orpheus, "/tts/websocket") as raw:
        await raw.send({**CARTESIA, "transcript": TEXT, "add_timestamps": True})
        assert (await raw.next())["param"] == "add_timestamps"


async def test_cancel_in_mid_speech_frees_the_writer(orpheus: Serving) -> None:
    baseline = held(orpheus)
    async with connected(orpheus, "/tts/websocket") as raw:
        await raw.send({**CARTESIA, "transcript": "On and on it goes. " * 50})
        assert (await raw.next())["type"] == "chunk"
        await raw.send({"context_id": "a", "cancel": True})
        *_, end = await frames(raw, "done")
        assert isinstance(end, dict)
        assert end["status_code"] == 499
        await raw.send({**CARTESIA, "transcript": TEXT})
        again = sound(await frames(raw, "done"), "data")
        assert len(again.tobytes()) == len(await by_openai(orpheus))
    assert await asyncio.to_thread(settles, orpheus, baseline)
