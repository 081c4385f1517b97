"""What no client should send, over every protocol: a coded answer in its own form, and nobody else hears of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from server.robot.arrays import pack
from tests.clients.conftest import Serving, serving
from tests.clients.raw import Raw, connected
from tests.clients.speech import frames, held, says, settles, sound

MEBIBYTE = "x" * 1024 * 1024
MANY = 10_000
NESTED = "[" * MANY
WORDS = "hello yes no stop "
"""A second of the toy's sound."""

Frames = list[str | bytes]


@dataclass(frozen=True, slots=True)
class Protocol:
    """One of the server's sockets. `greets`: frames that come unasked. `code` reads a frame's error, if it is one.

    `mistakes`: hostile messages by name, with the codes that may answer (None among them: the message is taken).
    `dies`: a mistake ends the connection, with 1008. `probes`: messages with the code of their answer, which shows that
    all before them was dealt with.
    """

    path: str
    code: Callable[[Any], str | None]
    mistakes: Mapping[str, tuple[Frames, set[str | None]]]
    greets: int = 0
    dies: bool = False
    probes: tuple[tuple[str | bytes, str], ...] = ((b"\x00", "invalid_frame"), ("[1]", "invalid_type"))

    def probe(self, allowed: set[str | None]) -> tuple[str | bytes, str]:
        return next(each for each in self.probes if each[1] not in allowed)


def text(**message: Any) -> str:
    return json.dumps(message)


def at(*names: str, kind: str = "error", of: str = "type") -> Callable[[Any], str | None]:
    """The code of a JSON error: at these names, of messages of a kind."""

    def read(told: Any) -> str | None:
        if not isinstance(told, dict) or (of and told.get(of) != kind):
            return None
        for name in names:
            told = told.get(name) if isinstance(told, dict) else None
        return told if isinstance(told, str) else None

    return read


JSON: dict[str, tuple[Frames, set[str | None]]] = {
    "bad json": (["nonsense"], {"invalid_json"}),
    "nested": ([NESTED], {"invalid_json"}),
    "half a character": (['"\\ud800'], {"invalid_json"}),
    "no number": (['{"type": NaN}', '{"type": "Speak", "speed": -Infinity}'], {"invalid_json"}),
    "no object": (["[1]"], {"invalid_type"}),
    "binary": ([b"\x00\x01"], {"invalid_frame"}),
}


NAMELESS = {"invalid_value", "voice_not_found", "model_not_found"}
"""What a name is that holds half a character."""


def also(**mistakes: tuple[Frames, set[str | None]]) -> dict[str, tuple[Frames, set[str | None]]]:
    return {**JSON, **{name.replace("_", " "): given for name, given in mistakes.items()}}


def cartesia(context: str, words: Any, **more: Any) -> str:
    form = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
    voice = {"mode": "id", "id": "default"}
    return text(
        **{"context_id": context, "model_id": "toy", "transcript": words, "voice": voice, "output_format": form, **more}
    )


def item(words: Any) -> str:
    content = [{"type": "input_text", "text": words}]
    return text(type="conversation.item.create", item={"type": "message", "role": "user", "content": content})


PROTOCOLS = {
    "realtime": Protocol(
        "/v1/realtime",
        at("error", "code"),
        also(
            wrong_type=([item(7)], {"invalid_type"}),
            unknown=([text(type="conversation.item.retrieve", item_id="x")], {"item_retrieve_invalid_item_id"}),
            long=([item(MEBIBYTE)], {None}),
            empty=([text(type="input_audio_buffer.append", audio="")] * MANY, {None}),
            blank=(["{}"] * MANY, {"missing_required_parameter"}),
            control=([text(type="input_audio_buffer.commit")], {"input_audio_buffer_commit_empty"}),
        ),
        greets=1,
    ),
    "transcription": Protocol(
        "/v1/realtime?intent=transcription",
        at("error", "code"),
        also(
            wrong_type=([text(type="input_audio_buffer.append", audio=7)], {"invalid_type"}),
            half_a_sample=([text(type="input_audio_buffer.append", audio="AA==")], {"invalid_value"}),
            unknown=([text(type="session.sing")], {"invalid_value"}),
            control=([text(type="response.create")], {"invalid_session_type"}),
            blank=(["{}"] * MANY, {"missing_required_parameter"}),
        ),
        greets=1,
    ),
    "vllm": Protocol(
        "/v1/audio/speech/stream",
        at("code"),
        also(
            wrong_type=([text(type="session.config", voice=7)], {"invalid_type"}),
            half_a_name=([text(type="\ud83d"), text(type="session.config", voice="\ude42")], {*NAMELESS}),
            far=([text(type="session.config", seed=2**70)], {"invalid_value"}),
            unknown=([text(type="session.sing")], {"invalid_value"}),
            long=([text(type="session.config"), text(type="input.text", text=MEBIBYTE)], {"text_too_long"}),
            empty=([text(type="session.config"), *[text(type="input.text", text="")] * MANY], {None}),
            blank=(["{}"] * MANY, {"missing_required_parameter"}),
            control=([text(type="input.done")], {"not_configured"}),
            flushes=(
                [text(type="session.config"), *[text(type="input.text", text=WORDS), text(type="input.done")] * 1100],
                {None, "too_many_flushes"},
            ),
        ),
    ),
    "elevenlabs": Protocol(
        "/v1/text-to-speech/default/stream-input",
        at("error", of=""),
        also(
            wrong_type=([text(text=7)], {"invalid_type"}),
            long=([text(text=MEBIBYTE)], {"text_too_long"}),
            blank=(["{}"] * MANY, {None}),
            flushes=([text(text=WORDS, flush=True)] * 1100, {None, "too_many_flushes"}),
        ),
        dies=True,
    ),
    "elevenlabs contexts": Protocol(
        "/v1/text-to-speech/default/multi-stream-input",
        at("error", of=""),
        also(
            wrong_type=([text(text="a", context_id=7)], {"invalid_type"}),
            long_name=([text(text="a", context_id="a" * 257)], {"invalid_value"}),
            long=([text(text=MEBIBYTE, context_id="a")], {"text_too_long"}),
            many_contexts=([text(text="hello", context_id=str(n)) for n in range(6)], {"too_many_contexts"}),
            empty=([text(text="")] * MANY, {None}),
            control=([text(context_id="nobody", close_context=True)], {None}),
        ),
        dies=True,
    ),
    "cartesia": Protocol(
        "/tts/websocket",
        at("error_code"),
        also(
            wrong_type=([cartesia("a", 7)], {"invalid_type"}),
            half_a_name=([cartesia("\ud83d", 7), cartesia("a", "b", model_id="\ude42")], {"invalid_type", *NAMELESS}),
            far=([cartesia("a", "b", generation_config={"seed": -(2**70)})], {"invalid_value"}),
            unknown=([text(context_id="nobody", cancel=True)], {None, "context_not_found"}),
            long=([cartesia("a", MEBIBYTE)], {"text_too_long"}),
            empty=([cartesia("a", "", **{"continue": True})] * MANY, {None}),
            borders=([cartesia("a", WORDS, max_buffer_delay_ms=0, **{"continue": True})] * 1100, {None}),
            flushes=([cartesia("a", WORDS, flush=True, **{"continue": True})] * 1100, {None, "too_many_flushes"}),
            blank=(["{}"] * MANY, {"missing_required_parameter"}),
        ),
    ),
    "deepgram": Protocol(
        "/v1/speak",
        at("code", kind="Warning"),
        also(
            wrong_type=([text(type="Speak", text=7)], {"invalid_type"}),
            half_a_name=([text(type="\ud83d")], {*NAMELESS}),
            unknown=([text(type="Sing")], {"invalid_value"}),
            long=([text(type="Speak", text=MEBIBYTE)], {"text_too_long"}),
            empty=([text(type="Speak", text="")] * MANY, {None}),
            blank=(["{}"] * MANY, {"missing_required_parameter"}),
            control=([text(type="Flush"), text(type="Clear")], {None}),
            flushes=([text(type="Speak", text=WORDS), text(type="Flush")] * 1100, {None, "too_many_flushes"}),
        ),
        greets=1,
    ),
    "hume": Protocol(
        "/v0/tts/stream/input",
        at("code"),
        also(
            wrong_type=([text(text=7)], {"invalid_type"}),
            unknown=([text(text="a", voice={"id": "nobody"})], {"voice_not_found"}),
            half_a_name=([text(text="a", voice={"id": "\ud83d"})], {*NAMELESS}),
            long=([text(text=MEBIBYTE)], {"text_too_long"}),
            empty=([text(text="")] * MANY, {None}),
            control=([text(flush=True)], {None}),
            flushes=([text(text=WORDS, flush=True)] * 1100, {None, "too_many_flushes"}),
        ),
    ),
    "robot": Protocol(
        "/v1/robot/session?model=vjepa2",
        at("code"),
        {
            **JSON,
            "nested": ([NESTED], {"invalid_json", "invalid_type"}),
            "no number": (['{"type": NaN}'], {"invalid_json", "invalid_value", "invalid_type"}),
            "wrong type": ([text(type="ask", settings=7)], {"invalid_type", "invalid_value", "unknown_parameter"}),
            "unknown": ([text(type="sing")], {"invalid_value", "unknown_event"}),
            "blank": (["{}"] * MANY, {"missing_required_parameter", "invalid_value"}),
            "control": ([text(type="ask")], {"no_frame", "missing_key", "missing_state", "no_goal", "not_ready"}),
        },
        greets=1,
    ),
    "openpi": Protocol(
        "/openpi/policy?model=vjepa2",
        lambda told: told.partition(":")[0] if isinstance(told, str) else None,
        {
            "text": (["nonsense"], {"invalid_frame"}),
            "bad msgpack": ([b"\xc1"], {"invalid_frame", "invalid_msgpack"}),
            "nested": ([b"\x91" * MANY], {"invalid_frame", "invalid_msgpack"}),
            "no map": ([pack([1])], {"invalid_frame"}),
            "wrong type": ([pack({"observation/image": 7})], {"missing_key", "wrong_dtype", "wrong_shape"}),
            "unknown": ([pack({"endpoint": "sing"})], {"invalid_value"}),
            "empty": ([pack({})] * MANY, {"missing_key"}),
        },
        greets=1,
        probes=((pack({"endpoint": "reset"}), "reset successful"),),
    ),
}
BASELINE: dict[str, float] = {}


@pytest.fixture(scope="module")
def hostile_server() -> Iterator[Serving]:
    for server in serving("toy", "vjepa2", "--set", "vjepa2.tiny=true"):
        BASELINE.update(held(server))
        yield server


@asynccontextmanager
async def bystander(server: Serving) -> AsyncIterator[Callable[[], Any]]:
    """Another client, who is spoken to before and after."""
    async with connected(server, "/v1/audio/speech/stream") as raw:
        await raw.send({"type": "session.config", "response_format": "pcm", "stream_audio": True})

        async def spoken() -> None:
            await raw.send({"type": "input.text", "text": "hello yes"})
            await raw.send({"type": "input.done"})
            assert says(sound(await frames(raw, "session.done")), "hello yes")

        await spoken()
        yield spoken


async def told(raw: Raw, protocol: Protocol, ours: Frames, last: str) -> tuple[list[str], int | None]:
    """Codes of the errors that frames bring, up to one with code `last`; the close code, if it was closed before."""

    async def send() -> None:
        for each in ours:
            await (raw.socket.send_bytes(each) if isinstance(each, bytes) else raw.socket.send_str(each))

    codes: list[str] = []
    sending = asyncio.create_task(send())
    try:
        while last not in codes:
            message = await asyncio.wait_for(raw.socket.receive(), 60)
            match message.type:
                case aiohttp.WSMsgType.TEXT:
                    said = message.data if "openpi" in protocol.path else json.loads(message.data)
                    if (code := protocol.code(said)) is not None:
                        codes.append(code)
                case aiohttp.WSMsgType.BINARY:
                    pass
                case _:
                    return codes, raw.socket.close_code
        return codes[:-1], None
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
async def test_hostile_messages_are_answered_in_their_protocols_form(
    hostile_server: Serving, protocol: Protocol
) -> None:
    async with bystander(hostile_server) as others:
        for name, (ours, allowed) in protocol.mistakes.items():
            probe, last = protocol.probe(allowed)
            async with connected(hostile_server, protocol.path) as raw:
                for _ in range(protocol.greets):
                    await raw.socket.receive()
                codes, closed = await told(raw, protocol, [*ours, probe], last)
            assert set(codes) <= allowed, name
            assert codes or None in allowed, (name, closed)
            floods = len(ours) > 120 and None not in allowed
            assert closed == (1008 if floods or (codes and protocol.dies) else None), name
        await others()
    assert hostile_server.get("/readyz")[0] == 200


POSTS = (
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/realtime/client_secrets",
    "/v1/text-to-speech/default",
)


@pytest.mark.parametrize("path", POSTS)
async def test_hostile_bodies_get_a_coded_refusal(hostile_server: Serving, path: str) -> None:
    bodies = [b"nonsense", NESTED.encode(), b"[1]", b'{"a": 1}', b"\x00\xff", MEBIBYTE.encode(), b'{"seed": NaN}']
    bodies += [b'{"text": "a", "input": "a", "prompt": "a", "messages": [], "seed": %d}' % 2**70]
    bodies += [b'{"model": "\\ud83d", "model_id": "\\ud83d", "text": "a", "input": "a", "prompt": "a", "messages": []}']
    if not path.endswith("client_secrets"):  # which may ask for nothing in particular
        bodies += [b"{}", b""]
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
        for body in bodies:
            async with session.post(hostile_server.url + path, data=body) as answer:
                told_of = await answer.json()
            assert answer.status in (400, 404, 413, 415), (body[:20], told_of)
            error = told_of["error"] if "error" in told_of else told_of["detail"]
            assert (error.get("code") or error.get("status")) not in (None, "server_error")


@pytest.mark.parametrize("path", [*POSTS, "/v1/realtime/calls", "/v1/nothing"])
async def test_a_body_that_is_not_encoded_as_it_says_gets_a_coded_refusal(hostile_server: Serving, path: str) -> None:
    kind = {"calls": "application/sdp", "transcriptions": "multipart/form-data; boundary=x"}
    headers = {"Content-Type": kind.get(path.rpartition("/")[2], "application/json"), "Content-Encoding": "gzip"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(hostile_server.url + path, data=b"no gzip", headers=headers) as answer,
    ):
        if path == "/v1/nothing":
            assert answer.status == 405
            return
        assert answer.status == 400
        told_of = await answer.json()
    error = told_of["error"] if "error" in told_of else told_of["detail"]
    assert error["code"] == "invalid_body"


@pytest.mark.parametrize("name", ["%00.js", "a" * 300 + ".js", "a/" * 3_000, "%ff.js", "[", "..%2f..%2fetc"])
def test_names_that_no_page_has_are_not_found(hostile_server: Serving, name: str) -> None:
    assert hostile_server.get(f"/{name}")[0] == 404


async def test_nothing_of_all_that_is_left(hostile_server: Serving) -> None:
    assert any(settles(hostile_server, BASELINE) for _ in range(5)), (held(hostile_server), BASELINE)


async def test_messages_beyond_the_limit_close_with_1009(hostile_server: Serving) -> None:
    """Behind the test of what is left: a robot's session waits for its robot after this."""
    head = b"\x81\xff" + (64 * 1024 * 1024).to_bytes(8, "big") + bytes(4)  # what follows need not be sent
    async with bystander(hostile_server) as others:
        for name, protocol in PROTOCOLS.items():
            async with connected(hostile_server, protocol.path) as raw:
                raw.socket._writer.transport.write(head)
                while (message := await asyncio.wait_for(raw.socket.receive(), 60)).type in (
                    aiohttp.WSMsgType.TEXT,
                    aiohttp.WSMsgType.BINARY,
                ):
                    pass
                assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1009), name
        await others()
