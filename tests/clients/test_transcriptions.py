"""`POST /v1/audio/transcriptions` with the stock SDK and plain forms."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import av
import numpy as np
import openai
import pytest
import pytest_asyncio
from av.audio.stream import AudioStream
from openai import AsyncOpenAI
from openai.types.audio import Transcription, TranscriptionVerbose
from pydantic import TypeAdapter

from media.codecs import Format, encode
from media.frames import to_int16
from media.resample import resample
from tests.clients.conftest import Serving
from tests.clients.speech import held, settles
from tests.system.toy import tones

SAID = "hello weather yes"
SOUND = tones(SAID, seconds=0.3, gap=0.2)
CODED: tuple[Format, ...] = ("wav", "flac", "mp3", "opus", "aac")


def muxed(container: str, codec: str, rate: int) -> bytes:
    """The sound in one of the containers that browsers and telephones record in."""
    file = io.BytesIO()
    pcm = resample(SOUND, 16_000, rate).astype(np.float32)
    with av.open(file, "w", format=container) as out:
        stream = out.add_stream(codec, rate=rate, layout="mono")
        assert isinstance(stream, AudioStream)
        frame = av.AudioFrame.from_ndarray(pcm[None], format="flt", layout="mono")
        frame.sample_rate = rate
        for each in (frame, None):
            out.mux(stream.encode(each))
    return file.getvalue()


FILES: dict[str, bytes] = {form: encode(form, to_int16(SOUND), 16_000) for form in CODED} | {
    "webm": muxed("webm", "libopus", 48_000),
    "m4a": muxed("mp4", "aac", 24_000),
}


@pytest_asyncio.fixture
async def sdk(toy_server: Serving) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{toy_server.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


async def post(server: Serving, path: str = "/v1/audio/transcriptions", **fields: Any) -> tuple[int, Any, str]:
    """Status, body, content type."""
    form = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, bytes):
                form.add_field(name, io.BytesIO(each), filename="sound")
            else:
                form.add_field(name + "[]" * isinstance(value, list), each)
    async with aiohttp.ClientSession() as session, session.post(server.url + path, data=form) as answer:
        raw = await answer.read()
        return answer.status, json.loads(raw) if answer.content_type == "application/json" else raw, answer.content_type


@pytest.mark.parametrize("form", FILES)
async def test_files_of_every_format_are_written_down(sdk: AsyncOpenAI, form: str) -> None:
    found = await sdk.audio.transcriptions.create(model="whisper-1", file=(f"a.{form}", FILES[form]))
    assert found.text == SAID
    TypeAdapter(Transcription).validate_python(found.model_dump(exclude_unset=True), strict=True)
    assert found.usage is not None
    assert (found.usage.type, found.usage.seconds) == ("duration", 2)  # type: ignore[union-attr]


async def test_words_and_segments_have_their_times(sdk: AsyncOpenAI) -> None:
    found = await sdk.audio.transcriptions.create(
        model="toy",
        file=("a.wav", FILES["wav"]),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    raw = found.model_dump(exclude_unset=True)
    TypeAdapter(TranscriptionVerbose).validate_python(raw, strict=True)
    assert (found.text, found.language, found.duration) == (SAID, "english", 1.5)
    assert found.words is not None
    assert [word.word for word in found.words] == SAID.split()
    for place, word in enumerate(found.words):
        assert abs(word.start - 0.5 * place) < 0.06
        assert abs(word.end - 0.5 * place - 0.3) < 0.06
    assert found.segments is not None
    assert [(each.id, each.text) for each in found.segments] == [(0, SAID)]
    plain = await sdk.audio.transcriptions.create(model="toy", file=FILES["wav"], response_format="verbose_json")
    assert plain.words is None
    assert plain.segments


async def test_text_and_subtitles(toy_server: Serving) -> None:
    assert (await post(toy_server, file=FILES["wav"], response_format="text"))[1:] == (
        f"{SAID}\n".encode(),
        "text/plain",
    )
    _, srt, _ = await post(toy_server, file=FILES["wav"], response_format="srt")
    assert srt.decode().splitlines()[::2] == ["1", SAID]
    assert srt.decode().splitlines()[1].startswith("00:00:00,0")
    _, vtt, kind = await post(toy_server, file=FILES["wav"], response_format="vtt")
    assert kind == "text/vtt"
    assert vtt.decode().startswith("WEBVTT\n\n00:00:00.0")


async def test_a_stream_of_events_is_the_whole_text(sdk: AsyncOpenAI) -> None:
    stream = await sdk.audio.transcriptions.create(model="gpt-4o-transcribe", file=FILES["flac"], stream=True)
    events = [event async for event in stream]
    assert [event.type for event in events][-1] == "transcript.text.done"
    assert {event.type for event in events[:-1]} == {"transcript.text.delta"}
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == SAID  # type: ignore[union-attr]


async def test_how_sure_the_model_is(sdk: AsyncOpenAI) -> None:
    found = await sdk.audio.transcriptions.create(model="toy", file=FILES["wav"], include=["logprobs"])
    assert found.logprobs is not None
    assert "".join(str(each.token) for each in found.logprobs) == SAID


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"file": b"RIFF nonsense"}, 400, "file"),
        ({"file": b""}, 400, "file"),
        ({"file": FILES["mp3"][:100]}, 400, "file"),
        ({}, 400, "file"),
        ({"file": FILES["wav"], "model": "gpt-none"}, 404, "model"),
        ({"file": FILES["wav"], "language": "de"}, 400, "language"),
        ({"file": FILES["wav"], "response_format": "diarized_json"}, 400, "response_format"),
        ({"file": FILES["wav"], "temperature": "2"}, 400, "temperature"),
        ({"file": FILES["wav"], "temperature": "warm"}, 400, "temperature"),
        ({"file": FILES["wav"], "timestamp_granularities": ["word"]}, 400, "timestamp_granularities"),
        ({"file": FILES["wav"], "response_format": "srt", "stream": "true"}, 400, "stream"),
        ({"file": FILES["wav"], "response_format": "text", "include": ["logprobs"]}, 400, "include"),
        ({"file": FILES["wav"], "shouting": "yes"}, 400, "shouting"),
        ({"file": FILES["wav"], "prompt": "x" * 5000}, 400, "prompt"),
        ({"file": FILES["wav"], "prompt": "x" * 100_000}, 413, "prompt"),
    ],
)
async def test_what_can_not_be_is_refused_by_name(
    toy_server: Serving, fields: dict[str, Any], status: int, param: str
) -> None:
    answered, body, _ = await post(toy_server, **fields)
    assert (answered, body["error"]["param"]) == (status, param)


async def test_a_file_beyond_the_limit_is_not_read_to_its_end(toy_server: Serving) -> None:
    status, body, _ = await post(toy_server, file=bytes(26 * 1024 * 1024))
    assert (status, body["error"]["code"], body["error"]["param"]) == (413, "body_too_large", "file")


async def test_translation_is_refused(toy_server: Serving) -> None:
    status, body, _ = await post(toy_server, "/v1/audio/translations", file=FILES["wav"])
    assert (status, body["error"]["code"]) == (400, "unsupported_operation")


async def test_errors_are_those_the_sdk_knows(sdk: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        await sdk.audio.transcriptions.create(model="toy", file=b"nonsense")
    assert (bad.value.code, bad.value.param, bad.value.type) == ("invalid_file", "file", "invalid_request_error")
    with pytest.raises(openai.NotFoundError):
        await sdk.models.retrieve("gpt-none")
    assert (await sdk.models.retrieve("toy")).id == "toy"


@pytest.mark.parametrize(
    ("raw", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"nonsense", "multipart/form-data; boundary=x", 400),
        (b"--x\r\nnonsense", "multipart/form-data; boundary=x", 400),
        (b"--x\r\n\r\nnameless\r\n--x--\r\n", "multipart/form-data; boundary=x", 400),
        (b"", "multipart/form-data", 400),
    ],
)
async def test_broken_forms_are_refused(toy_server: Serving, raw: bytes, kind: str, status: int) -> None:
    async with aiohttp.ClientSession() as session:
        headers = {"Content-Type": kind}
        async with session.post(f"{toy_server.url}/v1/audio/transcriptions", data=raw, headers=headers) as answer:
            body = await answer.json()
    assert answer.status == status, body
    assert body["error"]["code"] in ("unsupported_media_type", "invalid_form", "missing_required_parameter")


async def test_who_hangs_up_leaves_nothing(toy_server: Serving) -> None:
    baseline = held(toy_server)
    host, port = toy_server.url.removeprefix("http://").split(":")
    long = encode("wav", to_int16(np.tile(SOUND, 20)), 16_000)
    body = (
        b'--x\r\nContent-Disposition: form-data; name="stream"\r\n\r\ntrue\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + long + b"\r\n--x--\r\n"
    )
    head = (
        f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    )
    for cut in (len(body) // 2, len(body)):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.encode() + body[:cut])
        await writer.drain()
        writer.transport.abort()
    assert any(settles(toy_server, baseline) for _ in range(20))  # a file has to be read before it is left
