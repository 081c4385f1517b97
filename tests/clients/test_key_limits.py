"""A key that has used up what it may is told so, in each protocol's own form, and when to come back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI

from media.codecs import encode
from media.frames import to_int16
from tests.clients.conftest import Serving, serving
from tests.clients.raw import connected
from tests.clients.speech import frame, frames
from tests.clients.tones import spoken
from tests.system.toy import tones

KEYS = tuple(f"sk-{name}" for name in ("requests", "sessions", "written", "sockets", "heard", "realtime", "other"))
ASK: list[Any] = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def limited_server() -> Iterator[Serving]:
    keys = [word for key in KEYS for word in ("--api-key", key)]
    limits = ["--key-sessions", "2", "--key-requests", "6", "--key-characters", "60", "--key-seconds", "3"]
    yield from serving("toy", *keys, *limits, "--idle-seconds", "4")


def sdk(server: Serving, name: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key=f"sk-{name}", max_retries=0)


async def test_requests_a_minute(limited_server: Serving) -> None:
    async with sdk(limited_server, "requests") as client, sdk(limited_server, "other") as other:
        for _ in range(6):
            await client.chat.completions.create(model="toy", messages=ASK)
        with pytest.raises(openai.RateLimitError) as why:
            await client.chat.completions.create(model="toy", messages=ASK)
        assert why.value.code == "rate_limit_exceeded"
        assert why.value.type == "rate_limit_error"
        assert 1 <= int(why.value.response.headers["retry-after"]) <= 10
        await other.chat.completions.create(model="toy", messages=ASK)
        assert len((await client.models.list()).data) == 1  # looking costs nothing


async def test_sessions_at_once(limited_server: Serving) -> None:
    headers = {"Authorization": "Bearer sk-sessions"}
    held = "/v1/audio/speech/stream"  # is not idle for 30 s
    async with connected(limited_server, held, headers=headers), connected(limited_server, held, headers=headers):
        for path in ("/v1/realtime", "/v1/audio/speech/stream", "/v1/speak", "/v1/realtime?intent=transcription"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                async with connected(limited_server, path, headers=headers):
                    pass
            assert refusal.value.status == 429
            assert refusal.value.headers is not None
            assert int(refusal.value.headers["Retry-After"]) >= 1


async def test_characters_a_minute(limited_server: Serving) -> None:
    async with sdk(limited_server, "written") as client:
        await client.audio.speech.create(model="toy", voice="alloy", input="hello " * 12)
        with pytest.raises(openai.RateLimitError):
            await client.audio.speech.create(model="toy", voice="alloy", input="hello")
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="toy", messages=ASK)
        url = f"{limited_server.url}/v1/text-to-speech/default"
        async with (
            aiohttp.ClientSession(headers={"xi-api-key": "sk-written"}) as session,
            session.post(url, json={"text": "hello"}) as answer,
        ):
            assert answer.status == 429
            assert int(answer.headers["Retry-After"]) >= 1
            assert "detail" in await answer.json()


async def test_sockets_say_it_in_their_own_words(limited_server: Serving) -> None:
    """All on one account: the first uses it up."""
    headers = {"Authorization": "Bearer sk-sockets"}
    async with connected(limited_server, "/v1/audio/speech/stream", headers=headers) as raw:
        await raw.send({"type": "session.config"})
        await raw.send({"type": "input.text", "text": "hello " * 12})
        await raw.send({"type": "input.text", "text": "hello "})
        [*_, error] = await frames(raw, "error")
        assert isinstance(error, dict)
        assert error["code"] == "rate_limit_exceeded"
    async with connected(limited_server, "/v1/speak", headers=headers) as raw:
        await raw.send({"type": "Speak", "text": "hello"})
        [*_, warning] = await frames(raw, "Warning")
        assert isinstance(warning, dict)
        assert warning["code"] == "rate_limit_exceeded"
    path = "/v1/text-to-speech/default/stream-input"
    async with connected(limited_server, path) as raw:  # its key comes in the first message
        await raw.send({"text": "hello ", "xi_api_key": "sk-sockets"})
        error = await frame(raw)
        assert isinstance(error, dict)
        assert error["error"] == "rate_limit_exceeded"
        assert await raw.closed() == 1008
    async with connected(limited_server, "/tts/websocket", headers={"X-API-Key": "sk-sockets"}) as raw:
        voice = {"mode": "id", "id": "default"}
        form = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
        said = {"context_id": "a", "model_id": "toy", "transcript": "hello", "voice": voice, "output_format": form}
        await raw.send(said)
        [*_, error] = await frames(raw, "error")
        assert isinstance(error, dict)
        assert "rate_limit_exceeded" in json.dumps(error)


async def test_seconds_of_sound_a_minute(limited_server: Serving) -> None:
    file = encode("wav", to_int16(tones("hello yes no", seconds=0.6, gap=0.6)), 16_000)
    async with sdk(limited_server, "heard") as client:
        assert (await client.audio.transcriptions.create(model="toy", file=file)).text == "hello yes no"
        with pytest.raises(openai.RateLimitError):
            await client.audio.transcriptions.create(model="toy", file=file)


async def test_a_conversation_is_told_once_that_it_is_not_heard(limited_server: Serving) -> None:
    headers = {"Authorization": "Bearer sk-realtime"}
    async with connected(limited_server, headers=headers) as raw:
        await raw.next()
        sound = base64.b64encode(spoken("hello", "yes", "no", "stop", each=1.0)).decode()
        for _ in range(3):
            await raw.send({"type": "input_audio_buffer.append", "audio": sound})
        error = await raw.until("error")
        assert error["error"]["code"] == "rate_limit_exceeded"
        await raw.send({"type": "conversation.item.retrieve", "item_id": "none"})
        assert (await raw.until("error"))["error"]["code"] == "item_retrieve_invalid_item_id"
        assert (await raw.until("error"))["error"]["code"] == "idle_timeout"
        assert await raw.closed() == 1001
