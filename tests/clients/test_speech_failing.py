"""A voice that fails in mid-speech: every protocol tells so in its own form, and goes on where it does."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from models.toy.language import UNSAYABLE
from tests.clients.conftest import Serving
from tests.clients.raw import connected
from tests.clients.speech import RATE, frame, frames, held, says, settles, sound

FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE}
CARTESIA = {"context_id": "a", "model_id": "sonic", "voice": {"mode": "id", "id": "default"}, "output_format": FORMAT}
CONFIG = {"type": "session.config", "response_format": "pcm", "sample_rate": RATE, "stream_audio": True}
LATE = "hello " * 200 + UNSAYABLE


async def until_sound(raw: Any, field: str = "") -> None:
    found: list[Any] = []
    while not len(sound(found, field)):
        found.append(await frame(raw))


async def test_vllm_discards_the_utterance_and_takes_the_next(toy_server: Serving) -> None:
    async with connected(toy_server, "/v1/audio/speech/stream") as raw:
        await raw.send(CONFIG)
        await raw.send({"type": "input.text", "text": "hello "})
        await until_sound(raw)
        await raw.send({"type": "input.text", "text": f"{UNSAYABLE} "})
        found = [each for each in await frames(raw, "error") if isinstance(each, dict)]
        assert found[-2] == {
            "type": "audio.done", "utterance_index": 0, "sentence_index": 0, "total_bytes": RATE // 2, "error": True,
            "finish_reason": "stop",
        }  # fmt: skip
        assert (found[-1]["code"], found[-1]["partial_audio"], found[-1]["action"]) == ("node_failed", True, "discard")
        await raw.send({"type": "input.text", "text": "yes"})
        await raw.send({"type": "input.done"})
        assert says(sound((await frames(raw, "session.done"))[1:-2]), "yes")


async def test_cartesia_ends_the_context_and_no_other(toy_server: Serving) -> None:
    async with connected(toy_server, "/tts/websocket") as raw:
        await raw.send({**CARTESIA, "transcript": "hello ", "continue": True})
        await until_sound(raw, "data")
        await raw.send({**CARTESIA, "transcript": f"{UNSAYABLE} ", "continue": True})
        error = (await frames(raw, "error"))[-1]
        assert isinstance(error, dict)
        assert (error["context_id"], error["error_code"], error["status_code"]) == ("a", "node_failed", 500)
        await raw.send({**CARTESIA, "transcript": "yes"})
        assert says(sound(await frames(raw, "done"), "data"), "yes")


async def test_elevenlabs_tells_and_closes(toy_server: Serving) -> None:
    async with connected(toy_server, "/v1/text-to-speech/default/stream-input?output_format=pcm_24000") as raw:
        await raw.send({"text": "hello "})
        await until_sound(raw, "audio")
        await raw.send({"text": f"{UNSAYABLE} "})
        while "message" not in (told := await raw.next()):
            pass
        assert told["error"] == "node_failed"
        assert await raw.closed() == 1008


async def test_deepgram_warns_and_goes_on(toy_server: Serving) -> None:
    async with connected(toy_server, f"/v1/speak?encoding=linear16&sample_rate={RATE}") as raw:
        await raw.send({"type": "Speak", "text": "hello "})
        await until_sound(raw)
        await raw.send({"type": "Speak", "text": f"{UNSAYABLE} "})
        warning = (await frames(raw, "Warning"))[-1]
        assert isinstance(warning, dict)
        assert warning["code"] == "node_failed"
        await raw.send({"type": "Speak", "text": "yes"})
        await raw.send({"type": "Flush"})
        assert says(sound((await frames(raw, "Flushed"))[:-1]), "yes")


async def test_hume_tells_and_goes_on(toy_server: Serving) -> None:
    async with connected(toy_server, "/v0/tts/stream/input?format_type=pcm&no_binary=true") as raw:
        await raw.send({"text": "hello "})
        await until_sound(raw, "audio")
        await raw.send({"text": f"{UNSAYABLE} "})
        error = (await frames(raw, "error"))[-1]
        assert isinstance(error, dict)
        assert error["code"] == "node_failed"
        await raw.send({"text": "yes", "close": True})
        found: list[Any] = []
        while not (found and found[-1]["is_last_chunk"]):
            found.append(await frame(raw))
        assert says(sound(found, "audio"), "yes", 48_000)


async def test_http_breaks_off_sends_an_event_or_says_500(toy_server: Serving) -> None:
    baseline = held(toy_server)
    body = {"input": LATE, "response_format": "pcm"}
    async with aiohttp.ClientSession() as http:
        async with http.post(f"{toy_server.url}/v1/audio/speech", json=body) as answer:
            assert answer.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        async with http.post(f"{toy_server.url}/v1/audio/speech", json={**body, "stream_format": "sse"}) as answer:
            events = [json.loads(line[6:]) async for line in answer.content if line.startswith(b"data: ")]
        assert {each["type"] for each in events[:-1]} == {"speech.audio.delta"}
        assert events[-1]["type"] == "speech.audio.error"
        assert events[-1]["error"]["code"] == "node_failed"
        for path, field, at in (
            ("/v1/audio/speech", "input", ("error", "code")),
            ("/v1/text-to-speech/default", "text", ("detail", "status")),
        ):
            async with http.post(toy_server.url + path, json={field: UNSAYABLE}) as answer:
                assert answer.status == 500
                told = await answer.json()
                assert told[at[0]][at[1]] == "node_failed"
    assert settles(toy_server, baseline)
