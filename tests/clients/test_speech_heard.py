"""Thirty sentences through every protocol, written down again: what is said is what was written."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from media.frames import to_float
from media.g711 import mulaw_decode
from media.resample import resample
from tests.bench.peers import HEARING_RATE
from tests.bench.row_asr import transcribed
from tests.bench.runtime import running
from tests.clients.conftest import Serving, serving
from tests.clients.raw import connected
from tests.clients.speech import frame, frames, sound
from tests.wer import word_error_rate

SENTENCES = (Path(__file__).parents[1] / "data" / "sentences.txt").read_text().splitlines()
SEED = 5
RATE = 24_000
PHONE = 8000
LISTENED = 12 * HEARING_RATE
"""Silence is added up to here: in a short context the recogniser now and then says a short sentence twice."""

Protocol = Callable[[Serving, bool], Awaitable[list[bytes]]]
"""All sentences, each by itself, as 16 bit at 24 kHz, or as µ-law at 8 kHz."""


@pytest.fixture(scope="module")
def voice(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> Iterator[Serving]:
    yield from serving("voice")


async def openai(server: Serving, _: bool) -> list[bytes]:
    found = []
    async with aiohttp.ClientSession() as http:
        for text in SENTENCES:
            body = {"input": text, "response_format": "pcm", "seed": SEED}
            async with http.post(f"{server.url}/v1/audio/speech", json=body) as answer:
                assert answer.status == 200
                found.append(await answer.read())
    return found


async def vllm(server: Serving, _: bool) -> list[bytes]:
    found = []
    async with connected(server, "/v1/audio/speech/stream") as raw:
        config = {"response_format": "pcm", "sample_rate": RATE, "stream_audio": True, "seed": SEED}
        await raw.send({"type": "session.config", **config})
        for text in SENTENCES:
            await raw.send({"type": "input.text", "text": text})
            await raw.send({"type": "input.done"})
            found.append(sound(await frames(raw, "session.done")).tobytes())
    return found


async def elevenlabs(server: Serving, phone: bool) -> list[bytes]:
    form = "ulaw_8000" if phone else f"pcm_{RATE}"
    path = f"/v1/text-to-speech/default/stream-input?output_format={form}&seed={SEED}"
    found = []
    for text in SENTENCES:
        async with connected(server, path) as raw:
            for piece in (" ", text + " ", ""):
                await raw.send({"text": piece})
            pieces: list[Any] = []
            while not (pieces and pieces[-1].get("isFinal")):
                pieces.append(await frame(raw))
            found.append(raw_sound(pieces, "audio"))
    return found


async def cartesia(server: Serving, phone: bool) -> list[bytes]:
    coding = (
        {"encoding": "pcm_mulaw", "sample_rate": PHONE} if phone else {"encoding": "pcm_s16le", "sample_rate": RATE}
    )
    given = {"model_id": "sonic-3", "voice": {"mode": "id", "id": "default"}, "generation_config": {"seed": SEED}}
    found = []
    async with connected(server, "/tts/websocket") as raw:
        for number, text in enumerate(SENTENCES):
            message = {"context_id": str(number), "transcript": text, "output_format": {"container": "raw", **coding}}
            await raw.send({**given, **message})
            found.append(raw_sound(await frames(raw, "done"), "data"))
    return found


async def deepgram(server: Serving, phone: bool) -> list[bytes]:
    coding = f"mulaw&sample_rate={PHONE}" if phone else f"linear16&sample_rate={RATE}"
    found = []
    async with connected(server, f"/v1/speak?encoding={coding}&seed={SEED}") as raw:
        for text in SENTENCES:
            await raw.send({"type": "Speak", "text": text})
            await raw.send({"type": "Flush"})
            found.append(raw_sound(await frames(raw, "Flushed"), ""))
    return found


async def hume(server: Serving) -> list[bytes]:
    """At 48 kHz, its only rate."""
    found = []
    async with connected(server, f"/v0/tts/stream/input?format_type=pcm&no_binary=true&seed={SEED}") as raw:
        for text in SENTENCES:
            await raw.send({"text": text, "flush": True})
            pieces: list[Any] = []
            while not (pieces and pieces[-1].get("is_last_chunk")):
                pieces.append(await frame(raw))
            found.append(raw_sound(pieces, "audio"))
    return found


def raw_sound(pieces: list[Any], field: str) -> bytes:
    return b"".join(
        each if isinstance(each, bytes) else base64.b64decode(each.get(field) or "") if field else b""
        for each in pieces
    )


async def error_rate(sounds: list[np.ndarray], rate: int) -> float:
    """Of what the family's recogniser hears; int16 [n] each."""
    pairs = []
    async with running("voice") as client:
        for text, pcm in zip(SENTENCES, sounds, strict=True):
            sound = resample(to_float(pcm), rate, HEARING_RATE)
            heard, _ = await transcribed(client, np.pad(sound, (0, max(0, LISTENED - len(sound)))))
            pairs.append((text, heard))
    return word_error_rate(pairs)


@pytest.mark.slow
async def test_sentences_are_understood_through_every_protocol(voice: Serving) -> None:
    said = await openai(voice, False)
    for protocol in (vllm, elevenlabs, cartesia, deepgram):
        assert await protocol(voice, False) == said, protocol.__name__
    assert await error_rate([np.frombuffer(each, "<i2") for each in said], RATE) <= 0.04
    wide = [np.frombuffer(each, "<i2") for each in await hume(voice)]
    assert await error_rate(wide, 48_000) <= 0.04


@pytest.mark.slow
async def test_sentences_are_understood_through_a_telephone(voice: Serving) -> None:
    said = await deepgram(voice, True)
    for protocol in (elevenlabs, cartesia):
        assert await protocol(voice, True) == said, protocol.__name__
    assert await error_rate([mulaw_decode(each) for each in said], PHONE) <= 0.07
