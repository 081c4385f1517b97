"""`/v1/speak`: client message → server messages, the stock SDK, and what can not be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import numpy as np
import pytest
from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types.speak_v1text import SpeakV1Text
from websockets.exceptions import InvalidStatus

from media.g711 import alaw_decode, mulaw_decode
from tests.clients.conftest import Serving, serving
from tests.clients.raw import connected
from tests.clients.speech import RATE, frame, frames, held, says, settles, shape, sound

PATH = "/v1/speak?model=aura-2-thalia-en&encoding=linear16&sample_rate=24000"


async def test_speak_flush_speak_close(toy_server: Serving) -> None:
    async with connected(toy_server, PATH) as raw:
        first = await frame(raw)
        assert isinstance(first, dict)
        assert first["type"] == "Metadata"
        assert {"request_id", "model_name", "model_version", "model_uuid"} <= set(first)
        for number, text in enumerate(("hello weather", "yes")):
            for piece in text.partition(" "):
                await raw.send({"type": "Speak", "text": piece})
            await raw.send({"type": "Flush"})
            found = await frames(raw, "Flushed")
            assert shape(found) == ["bytes", "Flushed"]
            assert found[-1] == {"type": "Flushed", "sequence_id": number}
            assert says(sound(found[:-1]), text)
        await raw.send({"type": "Speak", "text": "stop"})
        await raw.send({"type": "Close"})
        rest = b""
        while (message := await raw.socket.receive()).type is aiohttp.WSMsgType.BINARY:
            rest += message.data
        assert says(np.frombuffer(rest, "<i2"), "stop")
        assert raw.socket.close_code == 1000


async def test_clear_silences_at_once_and_the_socket_lives(toy_server: Serving) -> None:
    baseline = held(toy_server)
    async with connected(toy_server, PATH) as raw:
        await raw.send({"type": "Speak", "text": "hello " * 500})
        await raw.send({"type": "Flush"})
        await frame(raw)
        assert isinstance(await frame(raw), bytes)
        await raw.send({"type": "Clear"})
        assert shape(await frames(raw, "Cleared"))[-1] == "Cleared"
        await raw.send({"type": "Clear"})
        assert await frame(raw) == {"type": "Cleared", "sequence_id": 1}
        await raw.send({"type": "Speak", "text": "yes"})
        await raw.send({"type": "Flush"})
        found = await frames(raw, "Flushed")
        assert says(sound(found[:-1]), "yes")
        assert found[-1] == {"type": "Flushed", "sequence_id": 2}
    assert settles(toy_server, baseline)


@pytest.mark.parametrize(("encoding", "decode"), [("mulaw", mulaw_decode), ("alaw", alaw_decode)])
async def test_telephone_encodings(toy_server: Serving, encoding: str, decode: Any) -> None:
    async with connected(toy_server, f"/v1/speak?encoding={encoding}&sample_rate=8000") as raw:
        await raw.send({"type": "Speak", "text": "hello yes"})
        await raw.send({"type": "Flush"})
        found = await frames(raw, "Flushed")
        pcm = decode(b"".join(each for each in found if isinstance(each, bytes)))
        assert says(pcm, "hello yes", 8000)


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ("nonsense", "invalid_json", None),
        ("[1]", "invalid_type", None),
        ({"type": "Sing"}, "invalid_value", "type"),
        ({"type": "Speak"}, "missing_required_parameter", "text"),
        ({"type": "Speak", "text": 7}, "invalid_type", "text"),
        ({"type": "Speak", "text": "x" * 1024 * 1024}, "text_too_long", "text"),
    ],
)
async def test_mistakes_are_warnings_and_the_socket_lives(
    toy_server: Serving, message: Any, code: str, param: str | None
) -> None:
    async with connected(toy_server, PATH) as raw:
        await frame(raw)
        for _ in range(200):
            await raw.send({"type": "Speak", "text": ""})
        await raw.send(message)
        warning = await frame(raw)
        assert isinstance(warning, dict)
        assert (warning["type"], warning["code"], warning["param"]) == ("Warning", code, param)
        await raw.socket.send_bytes(b"\x00\x01")
        warning = await frame(raw)
        assert isinstance(warning, dict)
        assert warning["code"] == "invalid_frame"
        await raw.send({"type": "Speak", "text": "yes"})
        await raw.send({"type": "Flush"})
        assert says(sound((await frames(raw, "Flushed"))[:-1]), "yes")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("encoding=mp3", "encoding"),
        ("encoding=linear16&sample_rate=12345", "sample_rate"),
        ("encoding=mulaw&sample_rate=16000", "sample_rate"),
        ("model=none", "model"),
        ("speed=3", "speed"),
        ("container=wav", "container"),
        ("sample_rate=fast", "sample_rate"),
    ],
)
def test_wrong_addresses_are_refused_before_the_upgrade(toy_server: Serving, query: str, param: str) -> None:
    status, body = toy_server.get(f"/v1/speak?{query}")
    assert (status, json.loads(body)["param"]) == (400, param)


# -------------------------------------------------------------------------------------------------------------- SDK


OLD = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the SDK's imports of websockets


@pytest.fixture(scope="module")
def guarded() -> Iterator[Serving]:
    yield from serving("toy", "--api-key", "dg-key")


def client(server: Serving, key: str) -> DeepgramClient:
    socket = server.url.replace("http", "ws")
    where = DeepgramClientEnvironment(base=server.url, production=socket, agent=socket, agent_rest=server.url)
    return DeepgramClient(api_key=key, environment=where)


def until_flushed(connection: Any) -> bytes:
    heard = b""
    while True:
        message = connection.recv()
        if isinstance(message, bytes):
            heard += message
        elif message.type == "Flushed":
            return heard


@OLD
def test_the_sdk_speaks_clears_and_closes(guarded: Serving) -> None:
    with client(guarded, "dg-key").speak.v1.connect(
        model="aura-2-thalia-en", encoding="linear16", sample_rate=str(RATE)
    ) as connection:
        for piece in ("hel", "lo ", "weather"):
            connection.send_text(SpeakV1Text(type="Speak", text=piece))
        connection.send_flush()
        assert says(np.frombuffer(until_flushed(connection), "<i2"), "hello weather")
        connection.send_text(SpeakV1Text(type="Speak", text="hello " * 300))
        connection.send_flush()
        connection.recv()
        connection.send_clear()
        while isinstance(message := connection.recv(), bytes):
            pass
        assert message.type == "Cleared"
        connection.send_text(SpeakV1Text(type="Speak", text="yes"))
        connection.send_flush()
        assert says(np.frombuffer(until_flushed(connection), "<i2"), "yes")
        connection.send_close()
        assert list(connection) == []


@OLD
def test_the_sdk_is_refused_without_its_key(guarded: Serving) -> None:
    connecting = client(guarded, "wrong").speak.v1.connect(model="aura-2-thalia-en")
    with pytest.raises(InvalidStatus) as refused, connecting:
        pass
    assert refused.value.response.status_code == 401


@pytest.mark.parametrize("scheme", ["Token", "Bearer"])
async def test_the_key_comes_in_a_header(guarded: Serving, scheme: str) -> None:
    async with connected(guarded, PATH, headers={"Authorization": f"{scheme} dg-key"}) as raw:
        assert isinstance(await frame(raw), dict)


async def test_browsers_bring_the_key_as_a_subprotocol(guarded: Serving) -> None:
    async with connected(guarded, PATH, protocols=("token", "dg-key")) as raw:
        assert raw.socket.protocol == "token"
        assert isinstance(await frame(raw), dict)
