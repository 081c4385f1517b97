"""`POST /v1/chat/completions` and `/v1/completions` with the stock SDK and plain HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, OpenAI
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from media.codecs import encode
from media.decode import decode_any
from media.frames import to_int16
from models.toy.language import NUMBERS
from tests.clients.conftest import Serving
from tests.clients.speech import held, says, settles
from tests.system.toy import tones

ASK: list[Any] = [{"role": "user", "content": "weather"}]
WEATHER: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
]


@pytest_asyncio.fixture
async def sdk(toy_server: Serving) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{toy_server.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def strict(kind: Any, found: Any) -> None:
    """What came has the API's own types, null where it may be null and no more."""
    TypeAdapter(kind).validate_json(found.model_dump_json(exclude_unset=True), strict=True)


async def post(server: Serving, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with aiohttp.ClientSession() as session, session.post(server.url + path, data=raw) as answer:
        return answer.status, json.loads(await answer.read())


def test_the_blocking_client_is_answered_and_streamed_to(toy_server: Serving) -> None:
    with OpenAI(base_url=f"{toy_server.url}/v1", api_key="unused", max_retries=0) as client:
        whole = client.chat.completions.create(model="toy", messages=ASK)
        strict(ChatCompletion, whole)
        assert whole.choices[0].message.content == "you said weather"
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage is not None
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
        with client.chat.completions.create(
            model="toy", messages=ASK, stream=True, stream_options={"include_usage": True}
        ) as stream:
            chunks = list(stream)
    for chunk in chunks:
        strict(ChatCompletionChunk, chunk)
    assert chunks[0].choices[0].delta.role == "assistant"
    text = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert len([piece for piece in text if piece]) > 3
    assert "".join(text) == "you said weather"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


async def test_a_conversation_is_remembered_by_who_sends_it(sdk: AsyncOpenAI) -> None:
    history: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "count"}]},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "again"},
    ]
    found = await sdk.chat.completions.create(model="toy", messages=history)
    assert found.choices[0].message.content == "again one"


async def test_a_prompt_that_another_client_brought_is_not_read_again(sdk: AsyncOpenAI) -> None:
    usages = []
    for question in ("weather", "count"):
        messages: list[Any] = [
            {"role": "system", "content": "be brief " * 40},
            {"role": "user", "content": question},
        ]
        usages.append((await sdk.chat.completions.create(model="toy", messages=messages)).usage)
    first, second = usages
    assert first is not None
    assert second is not None
    assert second.prompt_tokens_details is not None
    assert 200 < int(second.prompt_tokens_details.cached_tokens or 0) < second.prompt_tokens


async def test_the_length_is_bounded_and_told(sdk: AsyncOpenAI) -> None:
    for bound in ({"max_tokens": 5}, {"max_completion_tokens": 5}):
        found = await sdk.chat.completions.create(model="toy", messages=ASK, **bound)  # type: ignore[call-overload]
        assert (found.choices[0].message.content, found.choices[0].finish_reason) == ("you s", "length")
        assert found.usage.completion_tokens == 5
    plain = await sdk.completions.create(model="toy", prompt="count", max_tokens=7)
    assert (plain.choices[0].text, plain.choices[0].finish_reason) == ("one, tw", "length")


@pytest.mark.parametrize("stop", [" six", ["zzz", " six s", "seven"]])
async def test_a_stop_ends_the_answer_and_is_not_in_it(sdk: AsyncOpenAI, toy_server: Serving, stop: Any) -> None:
    baseline = held(toy_server)
    messages: list[Any] = [{"role": "user", "content": "long"}]
    whole = await sdk.chat.completions.create(model="toy", messages=messages, stop=stop)
    assert whole.choices[0].message.content == " ".join(NUMBERS[:5])
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage is not None
    assert len(" ".join(NUMBERS[:5])) <= whole.usage.completion_tokens <= len(" ".join(NUMBERS[:7]))
    assert whole.usage.prompt_tokens > 10
    stream = await sdk.chat.completions.create(model="toy", messages=messages, stop=stop, stream=True)
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == " ".join(NUMBERS[:5])
    assert settles(toy_server, baseline)


async def test_tools_are_offered_called_and_answered(sdk: AsyncOpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "call"}]
    found = await sdk.chat.completions.create(model="toy", messages=messages, tools=WEATHER)
    strict(ChatCompletion, found)
    choice = found.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
    messages += [
        choice.message.model_dump(),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    found = await sdk.chat.completions.create(model="toy", messages=messages, tools=WEATHER)
    assert found.choices[0].message.content == "it is sunny"
    for choice_of_tool in ("none", None):
        given: Any = {} if choice_of_tool is None else {"tools": WEATHER, "tool_choice": choice_of_tool}
        plain = await sdk.chat.completions.create(model="toy", messages=messages[:1], **given)
        assert plain.choices[0].message.content == "you said call"


async def test_a_call_can_be_required(sdk: AsyncOpenAI) -> None:
    two: list[Any] = [*WEATHER, {"type": "function", "function": {"name": "get_time", "parameters": {}}}]
    named: Any = {"type": "function", "function": {"name": "get_time"}}
    cases: list[Any] = [("required", "get_weather"), (named, "get_time")]
    for choice, name in cases:
        found = await sdk.chat.completions.create(model="toy", messages=ASK, tools=two, tool_choice=choice)
        assert found.choices[0].finish_reason == "tool_calls"
        assert found.choices[0].message.tool_calls is not None
        [call] = found.choices[0].message.tool_calls
        assert call.type == "function"
        assert call.function.name == name


async def test_a_call_is_streamed(sdk: AsyncOpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "call"}]
    named: Any = {"type": "function", "function": {"name": "get_weather"}}
    async with sdk.chat.completions.stream(model="toy", messages=messages, tools=WEATHER, tool_choice=named) as stream:
        async for _ in stream:
            pass
        found = await stream.get_final_completion()
    assert found.choices[0].finish_reason == "tool_calls"
    assert found.choices[0].message.tool_calls is not None
    assert found.choices[0].message.tool_calls[0].function.name == "get_weather"


async def test_an_answer_is_spoken(sdk: AsyncOpenAI) -> None:
    found = await sdk.chat.completions.create(
        model="toy", messages=ASK, modalities=["text", "audio"], audio={"voice": "alloy", "format": "wav"}
    )
    strict(ChatCompletion, found)
    message = found.choices[0].message
    assert message.audio is not None
    assert (message.content, message.audio.transcript) == (None, "you said weather")
    pcm, rate = decode_any(base64.b64decode(message.audio.data))
    assert says(to_int16(pcm), "you said weather", rate)
    messages: list[Any] = [
        *ASK,
        {"role": "assistant", "audio": {"id": message.audio.id}},
        {"role": "user", "content": "again"},
    ]
    again = await sdk.chat.completions.create(model="toy", messages=messages)
    assert again.choices[0].message.content == "again you said weather"


async def test_a_spoken_answer_is_streamed(sdk: AsyncOpenAI) -> None:
    stream = await sdk.chat.completions.create(
        model="toy",
        messages=ASK,
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "pcm16"},
        stream=True,
    )
    deltas: list[dict[str, Any]] = []
    async for chunk in stream:
        strict(ChatCompletionChunk, chunk)
        if chunk.choices[0].delta.audio is not None:
            deltas.append(chunk.choices[0].delta.model_dump(exclude_unset=True)["audio"])
    sound = b"".join(base64.b64decode(delta.get("data", "")) for delta in deltas)
    assert says(np.frombuffer(sound, "<i2"), "you said weather")
    assert "".join(delta.get("transcript", "") for delta in deltas) == "you said weather"
    assert "id" in deltas[0]
    assert "expires_at" in deltas[-1]


async def test_what_is_said_to_it_is_heard(sdk: AsyncOpenAI) -> None:
    wav = base64.b64encode(encode("wav", to_int16(tones("hello yes")), 16_000)).decode()
    content: Any = [
        {"type": "text", "text": "heard:"},
        {"type": "input_audio", "input_audio": {"data": wav, "format": "wav"}},
    ]
    found = await sdk.chat.completions.create(model="toy", messages=[{"role": "user", "content": content}])
    assert found.choices[0].message.content == "you said heard:\nhello yes"


async def test_texts_are_gone_on_with_together(sdk: AsyncOpenAI) -> None:
    found = await sdk.completions.create(model="toy", prompt=["count", "weather"], max_tokens=30, echo=True)
    strict(Completion, found)
    assert [choice.text for choice in found.choices] == [
        "countone, two, three, four, five, s",
        "weatheryou said weather",
    ]
    assert [choice.finish_reason for choice in found.choices] == ["length", "stop"]
    stream = await sdk.completions.create(
        model="toy", prompt=["count", "weather"], max_tokens=30, stream=True, stream_options={"include_usage": True}
    )
    texts = ["", ""]
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == ["one, two, three, four, five, s", "you said weather"]
    assert chunk.usage == found.usage


CHAT: dict[str, Any] = {"model": "toy", "messages": ASK}
TEXT: dict[str, Any] = {"model": "toy", "prompt": "count"}
PICTURE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("chat/completions", {**CHAT, "model": "gpt-none"}, 404, "model"),
        ("chat/completions", {"model": "toy"}, 400, "messages"),
        ("chat/completions", {**CHAT, "messages": []}, 400, "messages"),
        ("chat/completions", {**CHAT, "messages": [{"role": "nobody", "content": ""}]}, 400, "messages[0].role"),
        ("chat/completions", {**CHAT, "messages": [{"role": "user"}]}, 400, "messages[0].content"),
        ("chat/completions", {**CHAT, "messages": [{"role": "user", "content": 5}]}, 400, "messages[0].content"),
        (
            "chat/completions",
            {**CHAT, "messages": [{"role": "user", "content": PICTURE}]},
            400,
            "messages[0].content[0].type",
        ),
        (
            "chat/completions",
            {**CHAT, "messages": [{"role": "tool", "content": "", "tool_call_id": "x"}]},
            400,
            "messages[0].tool_call_id",
        ),
        (
            "chat/completions",
            {**CHAT, "messages": [{"role": "assistant", "audio": {"id": "x"}}]},
            400,
            "messages[0].audio.id",
        ),
        ("chat/completions", {**CHAT, "n": 2}, 400, "n"),
        ("chat/completions", {**CHAT, "logprobs": True}, 400, "logprobs"),
        ("chat/completions", {**CHAT, "top_logprobs": 3}, 400, "top_logprobs"),
        ("chat/completions", {**CHAT, "logit_bias": {"1": 1}}, 400, "logit_bias"),
        ("chat/completions", {**CHAT, "frequency_penalty": 1}, 400, "frequency_penalty"),
        ("chat/completions", {**CHAT, "presence_penalty": -1}, 400, "presence_penalty"),
        ("chat/completions", {**CHAT, "prediction": {"type": "content", "content": "x"}}, 400, "prediction"),
        ("chat/completions", {**CHAT, "web_search_options": {}}, 400, "web_search_options"),
        ("chat/completions", {**CHAT, "functions": []}, 400, "functions"),
        (
            "chat/completions",
            {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}},
            400,
            "response_format",
        ),
        ("chat/completions", {**CHAT, "response_format": {"type": "json_object"}}, 400, "response_format"),
        ("chat/completions", {**CHAT, "temperature": 3}, 400, "temperature"),
        ("chat/completions", {**CHAT, "temperature": "hot"}, 400, "temperature"),
        ("chat/completions", {**CHAT, "top_p": -1}, 400, "top_p"),
        ("chat/completions", {**CHAT, "max_tokens": 0}, 400, "max_tokens"),
        ("chat/completions", {**CHAT, "seed": 2**70}, 400, "seed"),
        ("chat/completions", {**CHAT, "stop": ["a"] * 5}, 400, "stop"),
        ("chat/completions", {**CHAT, "shout": True}, 400, "shout"),
        ("chat/completions", {**CHAT, "tool_choice": "required"}, 400, "tool_choice"),
        ("chat/completions", {**CHAT, "modalities": ["audio"]}, 400, "audio"),
        ("chat/completions", {**CHAT, "modalities": ["audio"], "audio": {"voice": "x"}}, 400, "audio.voice"),
        (
            "chat/completions",
            {**CHAT, "modalities": ["audio"], "audio": {"format": "mp3"}, "stream": True},
            400,
            "audio.format",
        ),
        ("chat/completions", {**CHAT, "stream_options": {}}, 400, "stream_options"),
        ("chat/completions", b"{", 400, None),
        ("chat/completions", b"[" * 100_000, 400, None),
        ("chat/completions", b"\xff\xfe", 400, None),
        ("chat/completions", [1], 400, None),
        ("completions", {**TEXT, "prompt": [1, 2]}, 400, "prompt[0]"),
        ("completions", {**TEXT, "prompt": []}, 400, "prompt"),
        ("completions", {**TEXT, "prompt": ["a", ""]}, 400, "prompt"),
        ("completions", {**TEXT, "n": 2}, 400, "n"),
        ("completions", {**TEXT, "logit_bias": {"1": 1}}, 400, "logit_bias"),
        ("completions", {**TEXT, "best_of": 2}, 400, "best_of"),
        ("completions", {**TEXT, "logprobs": 1}, 400, "logprobs"),
        ("completions", {**TEXT, "suffix": "x"}, 400, "suffix"),
    ],
)
async def test_what_can_not_be_is_refused_by_name(
    toy_server: Serving, path: str, body: Any, status: int, param: str | None
) -> None:
    answered, found = await post(toy_server, f"/v1/{path}", body)
    assert (answered, found["error"]["param"]) == (status, param)
    assert found["error"]["type"] == "invalid_request_error"


async def test_errors_are_those_the_sdk_knows(sdk: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await sdk.chat.completions.create(model="gpt-none", messages=ASK)
    assert missing.value.code == "model_not_found"
    fail: list[Any] = [{"role": "user", "content": "fail"}]
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError) as failed:
            await sdk.chat.completions.create(model="toy", messages=fail, stream=stream)
        assert (failed.value.code, failed.value.type) == ("node_failed", "server_error")


@pytest.mark.parametrize("stream", [False, True])
async def test_who_hangs_up_stops_the_answer(toy_server: Serving, stream: bool) -> None:
    baseline = held(toy_server)
    host, port = toy_server.url.removeprefix("http://").split(":")
    messages = [{"role": "user", "content": "long"}]
    body = json.dumps({**CHAT, "messages": messages, "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(8):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head + body)
        await writer.drain()
        if stream:
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
    assert settles(toy_server, baseline)
