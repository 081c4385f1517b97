"""`/tts/websocket`: client message → server messages, the stock SDK, and what can not be."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import aiohttp
import numpy as np
import pytest
from cartesia import Cartesia

from tests.clients.conftest import Serving, serving
from tests.clients.raw import Raw, connected
from tests.clients.speech import RATE, frame, frames, held, says, settles, shape, sound

PATH = "/tts/websocket?cartesia_version=2026-08-14"
FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE}


def given(context: str, transcript: str, **more: Any) -> dict[str, Any]:
    voice = {"mode": "id", "id": "default"}
    settings = {"model_id": "sonic-3", "voice": voice, "output_format": FORMAT, "language": "en"}
    return {"context_id": context, "transcript": transcript, **settings, **more}


async def answer(raw: Raw) -> list[Any]:
    found: list[Any] = []
    while not found or not found[-1]["done"]:
        each = await frame(raw)
        assert isinstance(each, dict)
        found.append(each)
    return found


async def test_one_message_is_said_and_done(toy_server: Serving) -> None:
    async with connected(toy_server, PATH) as raw:
        await raw.send(given("a", "hello weather"))
        found = await answer(raw)
        assert shape(found) == ["chunk", "done"]
        assert found[-1] == {"type": "done", "context_id": "a", "status_code": 200, "done": True}
        assert says(sound(found[:-1], "data"), "hello weather")
        assert {each["flush_id"] for each in found[:-1]} == {1}
        await raw.send(given("a", "yes"))  # the name can be used again
        assert says(sound((await answer(raw))[:-1], "data"), "yes")


@pytest.mark.parametrize("end", ["", " "])
async def test_text_goes_on_until_it_does_not(toy_server: Serving, end: str) -> None:
    async with connected(toy_server, PATH) as raw:
        for piece in ("hel", "lo wea", "ther yes"):
            await raw.send(given("a", piece, **{"continue": True}))
        await raw.send(given("a", end, **{"continue": False}))
        found = await answer(raw)
        assert shape(found) == ["chunk", "done"]
        assert says(sound(found[:-1], "data"), "hello weather yes")


async def test_flushes_are_numbered_and_told_behind_their_sound(toy_server: Serving) -> None:
    async with connected(toy_server, PATH) as raw:
        await raw.send(given("a", "hello", **{"continue": True, "flush": True}))
        await raw.send(given("a", "yes no", **{"continue": True}))
        await raw.send(given("a", "", **{"continue": True, "flush": True}))
        await raw.send(given("a", "stop"))
        found = await answer(raw)
        assert shape(found) == ["chunk", "flush_done", "chunk", "flush_done", "chunk", "done"]
        flushed = [each for each in found if each["type"] == "flush_done"]
        assert [(each["flush_id"], each["flush_done"], each["done"]) for each in flushed] == [
            (1, True, False),
            (2, True, False),
        ]
        for number, text in ((1, "hello"), (2, "yes no"), (3, "stop")):
            chunks = [each for each in found if each["type"] == "chunk" and each["flush_id"] == number]
            assert says(sound(chunks, "data"), text)


async def test_words_are_told_in_seconds_of_the_context(toy_server: Serving) -> None:
    async with connected(toy_server, PATH) as raw:
        await raw.send(given("a", "hello weather ", add_timestamps=True, **{"continue": True, "flush": True}))
        await raw.send(given("a", "yes"))
        told = [each["word_timestamps"] for each in await answer(raw) if each["type"] == "timestamps"]
        assert [word for each in told for word in each["words"]] == ["hello", "weather", "yes"]
        assert [at for each in told for at in each["start"]] == [0.0, 0.25, 0.5]
        assert [at for each in told for at in each["end"]] == [0.25, 0.5, 0.75]


async def test_without_delay_every_message_is_said_at_once(toy_server: Serving) -> None:
    async with connected(toy_server, PATH) as raw:
        await raw.send(given("a", "hel", max_buffer_delay_ms=0, **{"continue": True}))
        heard: list[Any] = []
        while len(sound(heard, "data")) < RATE // 4:
            heard.append(await frame(raw))
        assert says(sound(heard, "data"), "hel")


async def test_contexts_speak_at_once_and_one_is_cancelled(toy_server: Serving) -> None:
    baseline = held(toy_server)
    async with connected(toy_server, PATH) as raw:
        await raw.send(given("long", "hello " * 500))
        await raw.send(given("short", "yes no"))
        found: list[Any] = []
        while not any(each["context_id"] == "short" and each["done"] for each in found):
            found.append(await frame(raw))
        assert says(sound([each for each in found[:-1] if each["context_id"] == "short"], "data"), "yes no")
        await raw.send({"context_id": "long", "cancel": True})
        cancelled = (await frames(raw, "done"))[-1]
        assert cancelled == {"type": "done", "context_id": "long", "status_code": 499, "done": True}
        await raw.send({"context_id": "nobody", "cancel": True})
        await raw.send(given("next", "stop"))
        found = await answer(raw)
        assert {each["context_id"] for each in found} == {"next"}
        assert says(sound(found[:-1], "data"), "stop")
    assert settles(toy_server, baseline)


@pytest.mark.parametrize(("encoding", "rate"), [("pcm_f32le", 44_100), ("pcm_mulaw", 8000), ("pcm_alaw", 8000)])
async def test_encodings(toy_server: Serving, encoding: str, rate: int) -> None:
    form = {"container": "raw", "encoding": encoding, "sample_rate": rate}
    async with connected(toy_server, PATH) as raw:
        await raw.send(given("a", "hello yes", output_format=form))
        data = b"".join(base64.b64decode(each.get("data", "")) for each in await answer(raw))
        assert len(data) == rate // 2 * (4 if encoding == "pcm_f32le" else 1)
        if encoding == "pcm_f32le":
            assert says(np.frombuffer(data, "<f4"), "hello yes", rate)


@pytest.mark.parametrize(
    ("message", "param", "context"),
    [
        (given("a", "x", voice={"mode": "id", "id": "nobody"}), "voice.id", "a"),
        (given("a", "x", voice={"mode": "embedding", "id": "default"}), "voice.mode", "a"),
        (given("a", "x", model_id="none"), "model_id", "a"),
        (given("a", "x", output_format={**FORMAT, "encoding": "mp3"}), "output_format.encoding", "a"),
        (given("a", "x", output_format={**FORMAT, "sample_rate": 7}), "output_format.sample_rate", "a"),
        (
            given("a", "x", output_format={**FORMAT, "encoding": "pcm_mulaw"}),
            "output_format.sample_rate",
            "a",
        ),
        (given("a", "x", max_buffer_delay_ms=9000), "max_buffer_delay_ms", "a"),
        (given("a", "x", generation_config={"speed": 3.0}), "generation_config.speed", "a"),
        (given("a", "x", add_phoneme_timestamps=True), "add_phoneme_timestamps", "a"),
        (given("a", "x", pronunciation_dict_id="p"), "pronunciation_dict_id", "a"),
        ({"context_id": "a", "transcript": "x"}, "voice", "a"),
        ({"context_id": "a"}, "transcript", "a"),
        (given("", "x"), "context_id", ""),
        ({"transcript": "x"}, "context_id", None),
        ({"context_id": "a", "cancel": 5}, "cancel", "a"),
        (given("a", "x" * 1024 * 1024), "transcript", "a"),
        ("nonsense", None, None),
        ("[]", None, None),
    ],
)
async def test_mistakes_are_errors_of_their_context_and_the_socket_lives(
    toy_server: Serving, message: Any, param: str | None, context: str | None
) -> None:
    async with connected(toy_server, PATH) as raw:
        await raw.send(given("other", "hello", **{"continue": True}))
        await raw.send(message)
        error = (await frames(raw, "error"))[-1]
        assert isinstance(error, dict)
        assert error["param"] == param
        assert error.get("context_id") == context
        assert error["done"] is True
        assert error["status_code"] in (400, 404)
        await raw.send(given("other", " yes"))
        found = await answer(raw)
        assert {each["context_id"] for each in found} == {"other"}
        assert says(sound(found[:-1], "data"), "hello yes")


async def test_settings_of_a_context_can_not_change_and_there_are_no_more_than_64(toy_server: Serving) -> None:
    async with connected(toy_server, PATH) as raw:
        await raw.send(given("a", "x", **{"continue": True}))
        await raw.send(given("a", "x", output_format={**FORMAT, "sample_rate": 8000}))
        error = (await frames(raw, "error"))[-1]
        assert isinstance(error, dict)
        assert error["param"] == "output_format"
        for number in range(65):
            await raw.send(given(f"c{number}", " ", **{"continue": True}))
        error = (await frames(raw, "error"))[-1]
        assert isinstance(error, dict)
        assert error["error_code"] == "too_many_contexts"


# -------------------------------------------------------------------------------------------------------------- SDK


@pytest.fixture(scope="module")
def guarded() -> Iterator[Serving]:
    yield from serving("toy", "--api-key", "ca-key")


@pytest.fixture
def sdk(guarded: Serving) -> Iterator[Cartesia]:
    with Cartesia(api_key="ca-key", websocket_base_url=guarded.url.replace("http", "ws")) as client:
        yield client


@pytest.mark.filterwarnings("ignore:connect\\(\\) must be used:DeprecationWarning")  # inside the SDK
def test_the_sdk_streams_text_into_a_context(sdk: Cartesia) -> None:
    settings: Any = {
        "model_id": "sonic-3",
        "voice": {"mode": "id", "id": "default"},
        "output_format": FORMAT,
    }
    with sdk.tts.websocket_connect() as connection:
        context = connection.context(**settings)
        for piece in ("hello ", "weather ", "yes"):
            context.push(piece)
        context.no_more_inputs()
        heard = b"".join(each.audio or b"" for each in context.receive() if each.type == "chunk")
        assert says(np.frombuffer(heard, "<i2"), "hello weather yes")
        long: Any = {"context_id": "two", "transcript": "hello " * 300, **settings}
        connection.send(long)
        assert connection.recv().type == "chunk"
        connection.send({"context_id": "two", "cancel": True})
        while connection.recv().type != "done":
            pass
        unknown: Any = {**long, "context_id": "three", "voice": {"mode": "id", "id": "?"}}
        connection.send(unknown)
        error = connection.recv()
        assert error.type == "error"
        assert error.error_code == "voice_not_found"


@pytest.mark.filterwarnings("ignore:connect\\(\\) must be used:DeprecationWarning")  # inside the SDK
def test_the_sdk_flushes_and_has_two_contexts_at_once(sdk: Cartesia) -> None:
    voice: Any = {"mode": "id", "id": "default"}
    both: dict[str, Any] = {"one": ["hello ", "weather"], "two": ["yes ", "no"]}
    heard = dict.fromkeys(both, b"")
    flushed: list[str] = []
    with sdk.tts.websocket_connect() as connection:
        for at in (0, 1):
            for name, pieces in both.items():
                said: Any = {"context_id": name, "transcript": pieces[at], "model_id": "sonic-3", "voice": voice}
                end: Any = {"continue": True, "flush": True} if at == 0 else {"continue": False}
                said |= {"output_format": FORMAT, **end}
                connection.send(said)
        done = 0
        while done < 2:
            told: Any = connection.recv()
            match told.type:
                case "chunk":
                    heard[told.context_id] += told.audio
                case "flush_done":
                    flushed.append(told.context_id)
                case "done":
                    done += 1
    assert sorted(flushed) == ["one", "two"]
    for name, pieces in both.items():
        assert says(np.frombuffer(heard[name], "<i2"), "".join(pieces))


async def test_the_key_comes_in_the_address_or_a_header(guarded: Serving) -> None:
    for path, headers in ((f"{PATH}&api_key=ca-key", {}), (PATH, {"X-API-Key": "ca-key"})):
        async with connected(guarded, path, headers=headers) as raw:
            await raw.send(given("a", "yes"))
            assert says(sound((await answer(raw))[:-1], "data"), "yes")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with connected(guarded, f"{PATH}&api_key=wrong"):
            pass
    assert refused.value.status == 401
