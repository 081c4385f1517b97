"""`/v0/tts/stream/input`: client message → server messages, the stock SDK, and what can not be."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import aiohttp
import httpx
import numpy as np
import pytest
import soundfile
from hume import HumeClient
from hume.tts.types import PublishTts
from websockets.exceptions import InvalidStatus

from media.decode import decode_any
from tests.clients.conftest import Serving
from tests.clients.raw import Raw, connected
from tests.clients.speech import frame, says, shape, sound

RATE = 48_000
JSON = "/v0/tts/stream/input?format_type=pcm&no_binary=true"


async def all_of(raw: Raw) -> list[Any]:
    """Frames until the server closes with 1000."""
    found: list[Any] = []
    while (message := await raw.socket.receive()).type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
        found.append(message.data if message.type is aiohttp.WSMsgType.BINARY else json.loads(message.data))
    assert raw.socket.close_code == 1000
    return found


async def test_snippets_as_json(toy_server: Serving) -> None:
    async with connected(toy_server, JSON) as raw:
        for piece in ("hel", "lo ", "weather"):
            await raw.send({"text": piece})
        await raw.send({"flush": True})
        await raw.send({"text": "yes", "voice": {"name": "default", "provider": "HUME_AI"}})
        await raw.send({"close": True})
        found = await all_of(raw)
    assert shape(found) == ["audio"]
    snippets = list(dict.fromkeys(each["snippet_id"] for each in found))
    for name, text in zip(snippets, ("hello weather", "yes"), strict=True):
        mine = [each for each in found if each["snippet_id"] == name]
        assert says(sound(mine, "audio"), text, RATE)
        assert [each["chunk_index"] for each in mine] == list(range(len(mine)))
        assert [each["is_last_chunk"] for each in mine] == [False] * (len(mine) - 1) + [True]
        assert mine[-1]["text"] == text
    assert len({(each["generation_id"], each["request_id"]) for each in found}) == 1
    assert {each["audio_format"] for each in found} == {"pcm"}


async def test_binary_words_and_trailing_silence(toy_server: Serving) -> None:
    path = "/v0/tts/stream/input?format_type=pcm&include_timestamp_types=word"
    async with connected(toy_server, path) as raw:
        await raw.send({"text": "hello yes", "trailing_silence": 0.5})
        await raw.send({"close": True})
        found = await all_of(raw)
    pcm = sound([each for each in found if isinstance(each, bytes)])
    assert says(pcm[: RATE // 2], "hello yes", RATE)
    assert len(pcm) == RATE
    assert np.abs(pcm[RATE // 2 + 100 :].astype(int)).max() <= 1
    told = [each["timestamp"] for each in found if isinstance(each, dict)]
    assert [(each["text"], each["time"]["begin"], each["time"]["end"]) for each in told] == [
        ("hello", 0, 250),
        ("yes", 250, 500),
    ]


async def test_voice_and_speed_are_those_of_a_snippet(toy_server: Serving) -> None:
    async with connected(toy_server, JSON) as raw:
        await raw.send({"text": "hello", "description": "warm, low", "speed": 1.0})
        await raw.send({"text": " yes", "speed": 1.0, "voice": {"id": "default"}})
        await raw.send({"text": "no", "voice": {"name": "alloy", "provider": "CUSTOM_VOICE"}, "flush": True})
        found: list[Any] = []
        while not (found and found[-1]["is_last_chunk"]):
            found.append(await frame(raw))
        assert says(sound(found, "audio"), "hello yesno", RATE)
        assert {each["snippet_id"] for each in found} == {found[0]["snippet_id"]}


@pytest.mark.parametrize("form", ["wav", "mp3"])
async def test_chunks_are_files_or_parts_of_one(toy_server: Serving, form: str) -> None:
    for strip in ("false", "true"):
        path = f"/v0/tts/stream/input?format_type={form}&strip_headers={strip}"
        async with connected(toy_server, path) as raw:
            await raw.send({"text": "hello yes", "close": True})
            chunks = await all_of(raw)
        if form == "wav":
            assert b"".join(chunks).count(b"RIFF") == (len(chunks) if strip == "false" else 1)
        if strip == "true":
            heard, rate = decode_any(b"".join(chunks))
            assert rate == RATE
            assert abs(len(heard) - RATE // 2) < RATE // 10
        elif form == "wav":
            parts = [soundfile.read(io.BytesIO(each), dtype="int16")[0] for each in chunks]
            assert says(np.concatenate(parts), "hello yes", RATE)


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ("nonsense", "invalid_json", None),
        ("[1]", "invalid_type", None),
        ({"text": 7}, "invalid_type", "text"),
        ({"text": "a", "voice": {"id": "nobody"}}, "voice_not_found", "voice"),
        ({"text": "a", "speed": 3.0}, "invalid_value", "speed"),
        ({"text": "a", "trailing_silence": 60}, "invalid_value", "trailing_silence"),
        ({"text": "x" * 1024 * 1024}, "text_too_long", "text"),
    ],
)
async def test_mistakes_are_errors_and_the_socket_lives(
    toy_server: Serving, message: Any, code: str, param: str | None
) -> None:
    async with connected(toy_server, JSON) as raw:
        await raw.send(message)
        error = await frame(raw)
        assert isinstance(error, dict)
        assert (error["type"], error["code"], error["param"]) == ("error", code, param)
        for _ in range(1000):
            await raw.send({"text": ""})
        await raw.send({"text": "yes", "close": True})
        assert says(sound(await all_of(raw), "audio"), "yes", RATE)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("format_type=ogg", "format_type"),
        ("include_timestamp_types=phoneme", "include_timestamp_types"),
        ("model=none", "model"),
    ],
)
def test_wrong_addresses_are_refused_before_the_upgrade(toy_server: Serving, query: str, param: str) -> None:
    status, body = toy_server.get(f"/v0/tts/stream/input?{query}")
    assert (status, json.loads(body)["param"]) == (400, param)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the SDK's imports of websockets
def test_the_sdk_streams_text(toy_server: Serving) -> None:
    with httpx.Client() as http:
        client = HumeClient(api_key="unused", base_url=toy_server.url, httpx_client=http)
        with client.tts.stream_input.connect(format_type="pcm", no_binary=True, strip_headers=True) as connection:
            for piece in ("hel", "lo ", "weather"):
                connection.send_publish(PublishTts(text=piece))
            connection.send_publish(PublishTts(flush=True))
            connection.send_publish(PublishTts(text="yes", speed=1.0))
            connection.send_publish(PublishTts(close=True))
            chunks = [each for each in connection if each.type == "audio"]
        with (
            pytest.raises(InvalidStatus) as refused,
            client.tts.stream_input.connect(format_type="pcm", include_timestamp_types="phoneme"),
        ):
            pass
    heard = b"".join(base64.b64decode(each.audio) for each in chunks)
    assert says(np.frombuffer(heard, "<i2"), "hello weather yes", RATE)
    assert len({each.snippet_id for each in chunks}) == 2
    assert refused.value.response.status_code == 400
