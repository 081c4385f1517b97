"""`/v1/audio/speech/stream`: client message → server messages, and what can not be."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.clients.conftest import Serving
from tests.clients.raw import Raw, connected
from tests.clients.speech import RATE, WORD, frame, frames, held, says, settles, shape, sound

PATH = "/v1/audio/speech/stream"
PCM = {"type": "session.config", "response_format": "pcm", "stream_audio": True}


@asynccontextmanager
async def configured(server: Serving, **more: Any) -> AsyncIterator[Raw]:
    async with connected(server, PATH) as raw:
        await raw.send({**PCM, **more})
        yield raw


async def write(raw: Raw, text: str) -> None:
    await raw.send({"type": "input.text", "text": text})


async def test_an_utterance_and_another_on_the_open_socket(toy_server: Serving) -> None:
    async with configured(toy_server) as raw:
        for index, text in enumerate(("hello weather", "yes")):
            await write(raw, text)
            await raw.send({"type": "input.done"})
            found = await frames(raw, "session.done")
            assert shape(found) == ["audio.start", "bytes", "audio.done", "session.done"]
            first, done, end = found[0], found[-2], found[-1]
            assert isinstance(first, Mapping)
            assert first == {
                "type": "audio.start",
                "utterance_index": index,
                "sentence_index": 0,
                "sentence_text": text,
                "format": "pcm",
                "sample_rate": RATE,
            }
            pcm = sound(found[1:-2])
            assert says(pcm, text)
            assert done == {
                "type": "audio.done",
                "utterance_index": index,
                "sentence_index": 0,
                "total_bytes": 2 * len(pcm),
                "error": False,
                "finish_reason": "stop",
            }
            assert end == {"type": "session.done", "utterance_index": index, "total_sentences": 1}
        await raw.send({"type": "session.close"})
        assert await raw.closed() == 1000


async def test_sound_comes_while_the_text_is_being_written(toy_server: Serving) -> None:
    async with configured(toy_server) as raw:
        for letter in "hello wea":
            await write(raw, letter)
        found = [await frame(raw)]
        while len(sound(found[1:])) < WORD:
            found.append(await frame(raw))
        assert says(sound(found[1:]), "hello")
        await write(raw, "ther")
        await raw.send({"type": "input.done"})
        found += await frames(raw, "session.done")
        assert says(sound(found[1:-2]), "hello weather")


async def test_without_stream_audio_an_utterance_is_one_file(toy_server: Serving) -> None:
    async with configured(toy_server, response_format="wav", stream_audio=False) as raw:
        await write(raw, "hello yes")
        await raw.send({"type": "input.done"})
        found = await frames(raw, "session.done")
        assert len(found) == 4
        assert isinstance(found[1], bytes)
        pcm, rate = soundfile.read(io.BytesIO(found[1]), dtype="int16")
        assert rate == RATE
        assert says(pcm, "hello yes")


async def test_word_times_come_with_the_chunks_they_begin_in(toy_server: Serving) -> None:
    async with configured(toy_server, word_timestamps=True) as raw:
        await write(raw, "hello weather yes")
        await raw.send({"type": "input.done"})
        chunks = [each for each in await frames(raw, "session.done") if isinstance(each, dict)][1:-2]
        assert says(sound(list(chunks), "audio_b64"), "hello weather yes")
        assert [each["chunk_id"] for each in chunks] == list(range(len(chunks)))
        borders = [0, *(each["chunk_end_ms"] for each in chunks)]
        assert [each["chunk_start_ms"] for each in chunks] == borders[:-1]
        assert borders[-1] == 750
        told = [(each["chunk_start_ms"], stamp) for each in chunks for stamp in each["timestamps"]]
        assert [stamp["word"].strip() for _, stamp in told] == ["hello", "weather", "yes"]
        assert [(stamp["start_ms"], stamp["end_ms"]) for _, stamp in told] == [(0, 250), (250, 500), (500, 750)]
        assert all(start <= stamp["start_ms"] for start, stamp in told)


async def test_cancel_in_mid_speech_silences_at_once_and_the_socket_lives(toy_server: Serving) -> None:
    baseline = held(toy_server)
    async with configured(toy_server) as raw:
        await write(raw, "hello " * 300)
        await raw.send({"type": "input.done"})
        await frame(raw)
        await frame(raw)
        await raw.send({"type": "input.cancel"})
        assert (await frames(raw, "input.cancelled"))[-1] == {"type": "input.cancelled", "utterance_index": 1}
        await raw.send({"type": "input.cancel"})
        await write(raw, "yes")
        await raw.send({"type": "input.done"})
        found = await frames(raw, "session.done")
        assert shape(found) == ["input.cancelled", "audio.start", "bytes", "audio.done", "session.done"]
        assert says(sound(found[2:-2]), "yes")
        assert isinstance(found[-1], dict)
        assert found[-1]["utterance_index"] == 3
    assert settles(toy_server, baseline)


async def test_nothing_written_is_nothing_said(toy_server: Serving) -> None:
    async with configured(toy_server) as raw:
        await raw.send({"type": "input.done"})
        done = {"type": "session.done", "utterance_index": 0, "total_sentences": 0}
        assert await frame(raw) == done
        await write(raw, " , ")
        await raw.send({"type": "input.done"})
        assert await frame(raw) == {**done, "utterance_index": 1}


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ({**PCM, "response_format": "ogg"}, "invalid_value", "response_format"),
        ({**PCM, "voice": "nobody"}, "voice_not_found", "voice"),
        ({**PCM, "model": "none"}, "model_not_found", "model"),
        ({**PCM, "speed": 3.0}, "invalid_value", "speed"),
        ({**PCM, "stream_audio": "yes"}, "invalid_type", "stream_audio"),
        ({**PCM, "pitch": 1}, "unknown_parameter", "pitch"),
        ({**PCM, "ref_audio": "x"}, "invalid_type", "ref_audio"),
        ({**PCM, "task_type": "VoiceDesign"}, "invalid_value", "task_type"),
        ({"type": "input.text", "text": "hello"}, "not_configured", "type"),
        ({"type": "input.done"}, "not_configured", "type"),
        ({"type": "input.text"}, "missing_required_parameter", "text"),
        ({"type": "input.sing"}, "invalid_value", "type"),
        ({}, "missing_required_parameter", "type"),
        ("nonsense", "invalid_json", None),
        ("[]", "invalid_type", None),
        ("[" * 10_000, "invalid_json", None),
    ],
)
async def test_what_can_not_be_is_an_error_and_the_socket_lives(
    toy_server: Serving, message: Any, code: str, param: str | None
) -> None:
    async with connected(toy_server, PATH) as raw:
        await raw.send(message)
        error = await frame(raw)
        assert isinstance(error, dict)
        assert (error["type"], error["code"], error["param"]) == ("error", code, param)
        await raw.send(PCM)
        await write(raw, "yes")
        await raw.send({"type": "input.done"})
        assert says(sound((await frames(raw, "session.done"))[1:-2]), "yes")


async def test_too_much_and_too_many_leave_the_socket_alive(toy_server: Serving) -> None:
    async with configured(toy_server) as raw:
        for _ in range(10_000):
            await write(raw, "")
        await write(raw, "x" * 1024 * 1024)
        error = await frame(raw)
        assert isinstance(error, dict)
        assert (error["code"], error["param"]) == ("text_too_long", "text")
        await raw.socket.send_bytes(b"\x00")
        error = await frame(raw)
        assert isinstance(error, dict)
        assert error["code"] == "invalid_frame"
        await write(raw, "yes")
        await raw.send({"type": "input.done"})
        assert says(sound((await frames(raw, "session.done"))[1:-2]), "yes")


async def test_the_pcm_is_that_of_the_speech_route(toy_server: Serving) -> None:
    import aiohttp

    async with configured(toy_server) as raw, aiohttp.ClientSession() as http:
        await write(raw, "hello weather no")
        await raw.send({"type": "input.done"})
        pcm = sound((await frames(raw, "session.done"))[1:-2])
        body = {"input": "hello weather no", "response_format": "pcm"}
        async with http.post(f"{toy_server.url}/v1/audio/speech", json=body) as answer:
            assert np.array_equal(pcm, np.frombuffer(await answer.read(), "<i2"))
