"""`POST /v1/audio/speech` with the stock SDK and plain HTTP."""

from __future__ import annotations

import base64
import io
import json
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest
import pytest_asyncio
import soundfile
from openai import AsyncOpenAI

from media.decode import decode_any
from media.frames import to_int16
from models.toy.language import tone_of
from tests.clients.conftest import Serving
from tests.clients.speech import held, settles

RATE = 24_000
WORD = RATE // 4
TEXT = "hello weather yes"


@pytest_asyncio.fixture
async def sdk(toy_server: Serving) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{toy_server.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def words_in(pcm: np.ndarray) -> list[float]:
    """Hz of each quarter of a second."""
    found = []
    for at in range(0, len(pcm), WORD):
        piece = pcm[at : at + WORD].astype(np.float64)
        spectrum = np.abs(np.fft.rfft(piece * np.hanning(len(piece)), 4 * WORD))
        found.append(float(np.argmax(spectrum)))
    return found


async def post(server: Serving, body: Any) -> tuple[int, dict[str, str], bytes]:
    raw = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/audio/speech", data=io.BytesIO(raw)) as answer,
    ):
        return answer.status, dict(answer.headers), await answer.read()


async def pcm_of(server: Serving, text: str = TEXT, **more: Any) -> bytes:
    status, _, body = await post(server, {"input": text, "voice": "alloy", "response_format": "pcm", **more})
    assert status == 200, body
    return body


async def test_pcm_says_the_words_and_tells_what_it_is(sdk: AsyncOpenAI) -> None:
    async with sdk.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=TEXT, response_format="pcm"
    ) as answer:
        pieces = [piece async for piece in answer.iter_bytes()]
        told = answer.headers
    pcm = np.frombuffer(b"".join(pieces), "<i2")
    assert len(pcm) == 3 * WORD
    assert words_in(pcm) == pytest.approx([tone_of(word) for word in TEXT.split()], abs=3)
    assert (told["content-type"], told["x-sample-rate"], told["x-channels"], told["x-bit-depth"]) == (
        "audio/pcm",
        "24000",
        "1",
        "16",
    )
    assert told["transfer-encoding"] == "chunked"


@pytest.mark.parametrize("form", ["wav", "flac", "mp3", "opus", "aac"])
async def test_every_format_holds_the_same_sound(sdk: AsyncOpenAI, toy_server: Serving, form: Any) -> None:
    answer = await sdk.audio.speech.create(model="toy", voice="nova", input=TEXT, response_format=form)
    pcm = np.frombuffer(await pcm_of(toy_server), "<i2")
    if form == "wav":
        assert struct.unpack("<I", answer.content[40:44])[0] == 0xFFFFFFFF
        assert answer.content[44:] == pcm.tobytes()
        assert answer.content.count(b"RIFF") == 1
        return
    heard, rate = decode_any(answer.content)
    assert rate == (48_000 if form == "opus" else RATE)
    if form == "flac":
        assert np.array_equal(to_int16(heard), pcm)
    assert abs(len(heard) / rate - len(pcm) / RATE) < 0.15


async def test_events_carry_the_same_bytes(sdk: AsyncOpenAI, toy_server: Serving) -> None:
    sound, kinds = b"", []
    async with sdk.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="ash", input=TEXT, response_format="pcm", stream_format="sse"
    ) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        async for line in answer.iter_lines():
            if line:
                event = json.loads(line.removeprefix("data: "))
                kinds.append(event["type"])
                sound += base64.b64decode(event.get("audio", ""))
    assert sound == await pcm_of(toy_server)
    assert kinds[-1] == "speech.audio.done"
    assert set(kinds[:-1]) == {"speech.audio.delta"}
    assert event["usage"] == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}


async def test_without_streaming_a_file_states_its_length(toy_server: Serving) -> None:
    body = {"input": TEXT, "response_format": "wav", "stream": False}
    status, headers, wav = await post(toy_server, body)
    assert status == 200
    assert int(headers["Content-Length"]) == len(wav)
    read, rate = soundfile.read(io.BytesIO(wav), dtype="int16")
    assert rate == RATE
    assert read.tobytes() == await pcm_of(toy_server)
    assert struct.unpack("<I", wav[40:44])[0] == len(wav) - 44


async def test_another_sample_rate_is_resampled_and_told(toy_server: Serving) -> None:
    body = {"input": TEXT, "response_format": "pcm", "sample_rate": 8000}
    _, headers, raw = await post(toy_server, body)
    assert headers["X-Sample-Rate"] == "8000"
    assert len(raw) == 2 * 3 * 2000


@pytest.mark.parametrize(
    ("change", "status", "code", "param"),
    [
        ({"response_format": "ogg"}, 400, "invalid_value", "response_format"),
        ({"voice": "nobody"}, 400, "voice_not_found", "voice"),
        ({"voice": {"id": "nobody"}}, 400, "voice_not_found", "voice"),
        ({"model": "none"}, 404, "model_not_found", "model"),
        ({"speed": 9.0}, 400, "invalid_value", "speed"),
        ({"speed": "fast"}, 400, "invalid_type", "speed"),
        ({"input": ""}, 400, "empty_input", "input"),
        ({"input": "x" * 100_001}, 400, "invalid_value", "input"),
        ({"input": " , "}, 400, "no_speech", "input"),
        ({"sample_rate": 1}, 400, "invalid_value", "sample_rate"),
        ({"stream_format": "websocket"}, 400, "invalid_value", "stream_format"),
        ({"pitch": 2}, 400, "unknown_parameter", "pitch"),
    ],
)
async def test_what_can_not_be_is_refused_before_any_sound(
    toy_server: Serving, change: dict[str, Any], status: int, code: str, param: str
) -> None:
    got, _, body = await post(toy_server, {"input": TEXT, "voice": "alloy", **change})
    error = json.loads(body)["error"]
    assert (got, error["code"], error["param"]) == (status, code, param)


@pytest.mark.parametrize("raw", ["", "nonsense", "[]", "null", b"\xff\xfe", "[" * 100_000])
async def test_a_body_that_is_no_object_is_refused(toy_server: Serving, raw: Any) -> None:
    assert (await post(toy_server, raw))[0] == 400


async def test_a_body_beyond_the_limit_is_refused(toy_server: Serving) -> None:
    status, _, body = await post(toy_server, {"input": "x" * 1024 * 1024})
    assert (status, json.loads(body)["error"]["code"]) == (413, "body_too_large")


async def test_the_sdk_raises_its_own_errors(sdk: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await sdk.audio.speech.create(model="toy", voice="nobody", input=TEXT)
    assert refused.value.param == "voice"


async def test_voices_are_listed(toy_server: Serving) -> None:
    status, body = toy_server.get("/v1/audio/voices")
    assert status == 200
    listed = json.loads(body)
    assert listed["voices"] == ["default"]
    assert listed["data"][0] == {"id": "default", "object": "voice", "name": "default", "model": "toy"}
    assert listed["aliases"]["alloy"] == "default"


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/audio/speech", {}),
        ("/v1/audio/speech", {"stream": False}),
        ("/v1/text-to-speech/default/stream", {}),
        ("/v1/text-to-speech/default", {}),
        ("/v1/text-to-speech/default/with-timestamps", {}),
    ],
)
async def test_hanging_up_frees_everything(toy_server: Serving, path: str, more: dict[str, Any]) -> None:
    """Before the answer has begun, or in the middle of it."""
    await pcm_of(toy_server)
    before = held(toy_server)
    port = int(toy_server.url.rsplit(":", 1)[1])
    words = "hello " * 15_000  # an hour of them
    body = json.dumps({**({"input": words} if "audio" in path else {"text": words}), **more}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    streamed = "stream" in path or (not more and "audio" in path)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(head + body)
            if streamed:
                assert client.recv(64).startswith(b"HTTP/1.1 200")
            else:
                assert held(toy_server) != before
    assert settles(toy_server, before)
    assert len(await pcm_of(toy_server)) == 2 * 3 * WORD
