"""ElevenLabs' sockets and HTTP routes: message tables, the stock SDK over TLS, and what can not be."""

from __future__ import annotations

import base64
import io
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import numpy as np
import pytest
import soundfile
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError

from media.decode import decode_any
from media.g711 import mulaw_decode
from tests.clients.certificates import self_signed
from tests.clients.conftest import Serving, serving
from tests.clients.raw import connected
from tests.clients.speech import RATE, frame, held, says, settles, sound

ONE = "/v1/text-to-speech/default/stream-input?output_format=pcm_24000"
MANY = "/v1/text-to-speech/default/multi-stream-input?output_format=pcm_24000"
FIRST = {
    "text": " ",
    "voice_settings": {"stability": 0.5, "similarity_boost": 0.8, "speed": 1.0},
    "generation_config": {"chunk_length_schedule": [120, 160, 250, 290]},
}


async def until_final(raw: Any) -> list[Any]:
    found = []
    while True:
        found.append(each := await frame(raw))
        assert isinstance(each, dict)
        assert "message" not in each, each
        if each.get("isFinal"):
            return found


async def test_text_in_pieces_and_the_close(toy_server: Serving) -> None:
    async with connected(toy_server, ONE) as raw:
        await raw.send(FIRST)
        for piece in ("hel", "lo wea", "ther ", "yes"):
            await raw.send({"text": piece, "try_trigger_generation": True})
        await raw.send({"text": ""})
        found = await until_final(raw)
        assert says(sound(found[:-1], "audio"), "hello weather yes")
        assert found[-1] == {"isFinal": True}
        assert all(each["isFinal"] is None for each in found[:-1])
        assert await raw.closed() == 1000


async def test_characters_have_times_of_their_chunk_and_cover_the_sound(toy_server: Serving) -> None:
    text = "hello weather yes"
    async with connected(toy_server, ONE) as raw:
        await raw.send(FIRST)
        await raw.send({"text": text})
        await raw.send({"text": ""})
        found = (await until_final(raw))[:-1]
    begin, chars, times = 0.0, "", [0.0]
    for each in found:
        told = each["alignment"]
        assert each["normalizedAlignment"] == told
        if told is not None:
            for char, start, length in zip(
                told["chars"], told["charStartTimesMs"], told["charDurationsMs"], strict=True
            ):
                chars += char
                assert begin + start >= times[-1] - 2
                assert begin + start - times[-1] < 50
                times.append(begin + start + length)
        begin += len(base64.b64decode(each["audio"])) / 2 / RATE * 1000
    assert chars == text
    assert times[-1] == pytest.approx(begin, abs=3)


async def test_a_flush_is_said_before_the_text_goes_on(toy_server: Serving) -> None:
    async with connected(toy_server, ONE) as raw:
        await raw.send({"text": "hel", "flush": True})
        heard: list[Any] = [await frame(raw)]
        while len(sound(heard, "audio")) < RATE // 4:
            heard.append(await frame(raw))
        assert says(sound(heard, "audio"), "hel")
        await raw.send({"text": "lo"})
        await raw.send({"text": ""})
        assert says(sound((await until_final(raw))[:-1], "audio"), "lo")


async def test_contexts_speak_at_once_each_under_its_name(toy_server: Serving) -> None:
    async with connected(toy_server, MANY) as raw:
        await raw.send({**FIRST, "context_id": "a"})
        await raw.send({**FIRST, "contextId": "b"})
        await raw.send({"text": "hello weather", "context_id": "a"})
        await raw.send({"text": ""})  # keep-alive without a context
        await raw.send({"text": "yes no stop", "context_id": "b"})
        await raw.send({"text": "", "context_id": "b"})  # keep-alive
        for name in "ab":
            await raw.send({"context_id": name, "flush": True})
            await raw.send({"context_id": name, "close_context": True})
        found: list[Any] = []
        while sum(bool(each.get("isFinal")) for each in found) < 2:
            found.append(await frame(raw))
        for name, text in (("a", "hello weather"), ("b", "yes no stop")):
            assert says(sound([each for each in found if each["contextId"] == name], "audio"), text)
        await raw.send({"close_socket": True})
        assert await raw.closed() == 1000


async def test_closing_a_context_that_speaks_silences_it_at_once(toy_server: Serving) -> None:
    baseline = held(toy_server)
    async with connected(toy_server, MANY) as raw:
        for _ in range(2):  # the name can be used again
            await raw.send({"text": "hello " * 500, "context_id": "a", "flush": True})
            first = await frame(raw)
            assert isinstance(first, dict)
            assert first["contextId"] == "a"
            await raw.send({"context_id": "a", "close_context": True})
            await until_final(raw)
        await raw.send({"text": "yes", "context_id": "c", "flush": True})
        await raw.send({"context_id": "c", "close_context": True})
        found = await until_final(raw)
        assert {each["contextId"] for each in found} == {"c"}
        assert says(sound(found, "audio"), "yes")
        await raw.send({"text": "yes", "context_id": "d", "flush": True})
        await raw.send({"close_socket": True})  # what was flushed is still said
        assert says(sound(await until_final(raw), "audio"), "yes")
        assert await raw.closed() == 1000
    assert settles(toy_server, baseline)


@pytest.mark.parametrize(
    ("path", "messages", "param"),
    [
        (ONE.replace("pcm_24000", "pcm_1"), [FIRST], "output_format"),
        (ONE.replace("pcm_24000", "ogg"), [FIRST], "output_format"),
        (ONE.replace("default", "nobody"), [FIRST], "voice_id"),
        (ONE + "&model_id=none", [FIRST], "model_id"),
        (ONE + "&inactivity_timeout=1000", [FIRST], "inactivity_timeout"),
        (ONE + "&enable_ssml_parsing=true", [FIRST], "enable_ssml_parsing"),
        (ONE, [{"text": "a", "voice_settings": {"speed": 3.0}}], "voice_settings.speed"),
        (ONE, [{"text": 5}], "text"),
        (ONE, [{**FIRST, "pronunciation_dictionary_locators": [{"id": "x"}]}], "pronunciation_dictionary_locators"),
        (ONE, ["nonsense"], None),
        (ONE, ["[]"], None),
        (ONE, [FIRST, {"text": "x" * 1024 * 1024}], "text"),
        (
            MANY,
            [{**FIRST, "context_id": "a"}, {"text": "b", "context_id": "a", "voice_settings": {}}],
            "voice_settings",
        ),
        (MANY, [{"text": "a", "context_id": str(n)} for n in range(6)], "context_id"),
        (MANY, [{"text": "a", "context_id": 7}], "context_id"),
    ],
)
async def test_mistakes_are_told_and_end_the_connection(
    toy_server: Serving, path: str, messages: list[Any], param: str | None
) -> None:
    async with connected(toy_server, path) as raw:
        for message in messages:
            await raw.send(message)
        while True:
            last = await frame(raw)
            assert isinstance(last, dict)
            if "message" in last:
                break
        assert last["code"] == 1008
        assert last["param"] == param
        assert await raw.closed() == 1008


async def test_ten_thousand_empty_messages_are_nothing(toy_server: Serving) -> None:
    async with connected(toy_server, ONE) as raw:
        for _ in range(10_000):
            await raw.send({"text": " "})
        await raw.send({"text": "yes"})
        await raw.send({"text": ""})
        assert says(sound((await until_final(raw))[:-1], "audio"), "yes")


async def test_who_says_nothing_is_told_and_let_go(toy_server: Serving) -> None:
    async with connected(toy_server, ONE + "&inactivity_timeout=1") as raw:
        await raw.send(FIRST)
        told = await frame(raw)
        assert isinstance(told, dict)
        assert told["error"] == "input_timeout_exceeded"
        assert await raw.closed() == 1008


# ------------------------------------------------------------------------------------------------------------- HTTP


async def post(server: Serving, path: str, body: Any) -> tuple[int, str, bytes]:
    async with aiohttp.ClientSession() as http, http.post(server.url + path, json=body) as answer:
        return answer.status, answer.content_type, await answer.read()


async def test_http_routes_say_the_same(toy_server: Serving) -> None:
    root, pcm = "/v1/text-to-speech/default", "?output_format=pcm_24000"
    body = {"text": "hello yes", "model_id": "eleven_flash_v2_5"}
    status, kind, whole = await post(toy_server, root + pcm, body)
    assert (status, kind) == (200, "audio/pcm")
    assert says(np.frombuffer(whole, "<i2"), "hello yes")
    assert (await post(toy_server, f"{root}/stream{pcm}", body))[2] == whole
    timed = json.loads((await post(toy_server, f"{root}/with-timestamps{pcm}", body))[2])
    assert base64.b64decode(timed["audio_base64"]) == whole
    assert "".join(timed["alignment"]["characters"]) == "hello yes"
    assert timed["alignment"]["character_end_times_seconds"][-1] == 0.5
    lines = (await post(toy_server, f"{root}/stream/with-timestamps{pcm}", body))[2].splitlines()
    assert b"".join(base64.b64decode(json.loads(line)["audio_base64"]) for line in lines) == whole
    told = [json.loads(line)["alignment"] for line in lines]
    assert "".join(char for each in told if each for char in each["characters"]) == "hello yes"


@pytest.mark.parametrize(
    ("form", "rate"), [("mp3_44100_128", 44_100), ("mp3_22050_32", 22_050), ("opus_48000_64", 48_000)]
)
async def test_compressed_formats(toy_server: Serving, form: str, rate: int) -> None:
    path = f"/v1/text-to-speech/default?output_format={form}"
    heard, told = decode_any((await post(toy_server, path, {"text": "hello yes"}))[2])
    assert told == rate
    assert abs(len(heard) / rate - 0.5) < 0.15


async def test_wav_and_mu_law(toy_server: Serving) -> None:
    body = {"text": "hello yes"}
    wav = (await post(toy_server, "/v1/text-to-speech/default?output_format=wav_16000", body))[2]
    pcm, rate = soundfile.read(io.BytesIO(wav), dtype="int16")
    assert (len(pcm), rate) == (8000, 16_000)
    raw = (await post(toy_server, "/v1/text-to-speech/default?output_format=ulaw_8000", body))[2]
    assert len(mulaw_decode(raw)) == 4000


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/text-to-speech/nobody", {"text": "a"}, 404, "voice_id"),
        ("/v1/text-to-speech/default", {"text": " "}, 400, "text"),
        ("/v1/text-to-speech/default", {"text": ","}, 400, "text"),
        ("/v1/text-to-speech/default", {}, 400, "text"),
        ("/v1/text-to-speech/default", {"text": "a", "model_id": "none"}, 404, "model_id"),
        ("/v1/text-to-speech/default/stream?output_format=mp4", {"text": "a"}, 400, "output_format"),
    ],
)
async def test_http_refusals_name_the_field(toy_server: Serving, path: str, body: Any, status: int, param: str) -> None:
    got, _, answer = await post(toy_server, path, body)
    assert (got, json.loads(answer)["detail"]["param"]) == (status, param)


# -------------------------------------------------------------------------------------------------------------- SDK


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, Path]]:
    """A server with TLS and a key, and its certificate."""
    certificate, key = self_signed(tmp_path_factory.mktemp("tls"))
    for server in serving("toy", "--api-key", "xi-key", "--tls", str(certificate), str(key), certificate=certificate):
        yield server, certificate


@pytest.fixture
def sdk(secure: tuple[Serving, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server, certificate = secure
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with httpx.Client() as http:
        yield ElevenLabs(api_key="xi-key", base_url=server.url, httpx_client=http)


OLD = pytest.mark.filterwarnings("ignore:ConnectionClosed.code is deprecated:DeprecationWarning")  # inside the SDK


@OLD
def test_the_sdk_streams_text_over_tls(sdk: Any) -> None:
    pieces = sdk.text_to_speech.convert_realtime(
        "default", text=iter(["hello ", "weather. ", "yes"]), model_id="eleven_flash_v2_5", output_format="pcm_24000"
    )
    assert says(np.frombuffer(b"".join(pieces), "<i2"), "hello weather. yes")


def test_the_sdk_converts_streams_and_times(sdk: Any) -> None:
    given = {"text": "hello yes", "output_format": "pcm_24000"}
    whole = b"".join(sdk.text_to_speech.convert("default", **given))
    assert says(np.frombuffer(whole, "<i2"), "hello yes")
    assert b"".join(sdk.text_to_speech.stream("default", **given)) == whole
    timed = sdk.text_to_speech.convert_with_timestamps("default", **given)
    assert base64.b64decode(timed.audio_base_64) == whole
    assert "".join(timed.alignment.characters) == "hello yes"
    parts = list(sdk.text_to_speech.stream_with_timestamps("default", **given))
    assert b"".join(base64.b64decode(each.audio_base_64) for each in parts) == whole


@OLD
@pytest.mark.filterwarnings("ignore:ConnectionClosed.reason is deprecated:DeprecationWarning")  # the SDK reads it
def test_the_sdk_raises_what_the_server_says(sdk: Any) -> None:
    with pytest.raises(ApiError) as refused:
        b"".join(sdk.text_to_speech.convert_realtime("nobody", text=iter(["hello "]), output_format="pcm_24000"))
    assert refused.value.status_code == 1008
    said = refused.value.body  # the message, or why the socket was closed, where the SDK writes before it reads
    assert "voice 'nobody' does not exist" in (said if isinstance(said, str) else said["message"])
    with pytest.raises(ApiError) as unfound:
        b"".join(sdk.text_to_speech.convert("nobody", text="hello"))
    assert unfound.value.status_code == 404


async def test_keys_come_in_the_header_or_the_first_message(secure: tuple[Serving, Path]) -> None:
    server, certificate = secure
    context = ssl.create_default_context(cafile=str(certificate))
    for headers, first in (
        ({"xi-api-key": "xi-key"}, FIRST),
        ({}, {**FIRST, "xi_api_key": "xi-key"}),
        ({}, {**FIRST, "authorization": "Bearer xi-key"}),
    ):
        async with connected(server, ONE, ssl=context, headers=headers) as raw:
            await raw.send(first)
            await raw.send({"text": "yes"})
            await raw.send({"text": ""})
            assert says(sound((await until_final(raw))[:-1], "audio"), "yes")
    async with connected(server, ONE, ssl=context) as raw:
        await raw.send(FIRST)
        told = await frame(raw)
        assert isinstance(told, dict)
        assert told["error"] == "invalid_api_key"
        assert await raw.closed() == 1008
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with connected(server, ONE, ssl=context, headers={"xi-api-key": "wrong"}):
            pass
    assert refused.value.status == 401
