"""The unmodified `openai` SDK holds conversations with the server; all it is sent passes the SDK's strict types."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from models.toy.language import NUMBERS, tone_of
from tests.clients.conftest import Serving
from tests.clients.tones import RATE, silence, spoken, tones

STRICT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
MANUAL = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
CALL = {"type": "function", "name": "get_weather", "description": "", "parameters": {"type": "object"}}


class Talk:
    """One connection; every event that comes is checked and kept."""

    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        self.connection = connection
        self.events: list[dict[str, Any]] = []

    async def next(self) -> dict[str, Any]:
        raw = json.loads(await asyncio.wait_for(self.connection.recv_bytes(), 20))
        STRICT.validate_python(raw, strict=True)
        self.events.append(raw)
        return dict(raw)

    async def until(self, kind: str) -> dict[str, Any]:
        while (event := await self.next())["type"] != kind:
            assert kind == "error" or event["type"] != "error", event
        return event

    async def update(self, session: dict[str, Any]) -> dict[str, Any]:
        await self.connection.session.update(session=session)  # type: ignore[arg-type]
        return dict((await self.until("session.updated"))["session"])

    async def hear(self, sound: bytes) -> None:
        await self.connection.input_audio_buffer.append(audio=base64.b64encode(sound).decode())

    async def write(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        item: Any = {"type": "message", "role": "user", "content": content}
        await self.connection.conversation.item.create(item=item)

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def joined(self, kind: str) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == kind)

    def sound(self) -> bytes:
        deltas = [event["delta"] for event in self.events if event["type"] == "response.output_audio.delta"]
        return b"".join(base64.b64decode(delta) for delta in deltas)


@asynccontextmanager
async def talk(server: Serving, model: str = "toy") -> AsyncIterator[Talk]:
    client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    async with client.realtime.connect(model=model) as connection:
        talking = Talk(connection)
        assert (await talking.next())["type"] == "session.created"
        yield talking
    await client.close()


async def test_text_turn(toy_server: Serving) -> None:
    async with talk(toy_server) as talking:
        await talking.update({"type": "realtime", "output_modalities": ["text"]})
        await talking.write("hello there")
        await talking.connection.response.create(response={"metadata": {"client_event_id": "x"}})
        done = (await talking.until("response.done"))["response"]
        assert done["status"] == "completed"
        assert done["metadata"] == {"client_event_id": "x"}
        assert done["output"][0]["content"][0]["text"] == "you said hello there"
        assert talking.joined("response.output_text.delta") == "you said hello there"
        assert done["usage"]["input_tokens"] > 0


async def test_audio_turn_with_server_vad(toy_server: Serving) -> None:
    async with talk(toy_server) as talking:
        await talking.update({"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}})
        await talking.hear(silence(0.3) + spoken("hello", "name") + silence(1.0))
        done = (await talking.until("response.done"))["response"]
        assert done["status"] == "completed"
        item = done["output"][0]
        assert item["content"][0]["transcript"] == "you said hello name"
        heard = next(e for e in talking.events if e["type"].endswith("transcription.completed"))
        assert heard["transcript"] == "hello name"
        started = next(e for e in talking.events if e["type"] == "input_audio_buffer.speech_started")
        assert started["audio_start_ms"] <= 300
        assert len(talking.sound()) == pytest.approx(4 * RATE // 4 * 2, abs=8)
        wanted = [tone_of(word) for word in ("you", "said", "hello", "name")]
        assert tones(talking.sound()) == pytest.approx(wanted, abs=6)
        order = talking.types()
        assert order.index("input_audio_buffer.speech_stopped") < order.index("response.created")


async def test_prepared_answers_are_the_same_as_others(toy_server: Serving) -> None:
    said = []
    for prepare in (True, False):
        async with talk(toy_server) as talking:
            detection = {"type": "server_vad", "silence_duration_ms": 500, "prepare": prepare}
            await talking.update({"type": "realtime", "audio": {"input": {"turn_detection": detection}}})
            await talking.hear(spoken("hello", "sing") + silence(1.0))
            done = (await talking.until("response.done"))["response"]
            said.append((done["output"][0]["content"], talking.sound(), done["usage"]))
    assert said[0] == said[1]


async def test_manual_commit_and_a_second_turn_that_remembers_the_first(toy_server: Serving) -> None:
    async with talk(toy_server) as talking:
        assert (await talking.update(MANUAL))["audio"]["input"]["turn_detection"] is None
        for words, answer in ((("yes",), "you said yes"), (("again",), "again you said yes")):
            await talking.hear(spoken(*words))
            await talking.connection.input_audio_buffer.commit()
            await talking.connection.response.create()
            done = (await talking.until("response.done"))["response"]
            assert done["output"][0]["content"][0]["transcript"] == answer
        assert done["usage"]["input_token_details"]["cached_tokens"] > 0
        assert not any("speech" in kind for kind in talking.types())


async def test_barge_in_keeps_what_was_heard(toy_server: Serving) -> None:
    async with talk(toy_server) as talking:
        await talking.hear(spoken("count") + silence(0.8))
        created = (await talking.until("response.created"))["response"]["id"]
        while len(talking.sound()) < 2 * RATE:  # one second of it: "one, two, three, four,"
            await talking.until("response.output_audio.delta")
        await talking.hear(spoken("stop"))
        await talking.until("input_audio_buffer.speech_started")
        done = (await talking.until("response.done"))["response"]
        assert done["id"] == created
        assert done["status"] == "cancelled"
        assert done["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        item = done["output"][0]
        assert item["status"] == "incomplete"
        await talking.connection.conversation.item.truncate(item_id=item["id"], content_index=0, audio_end_ms=760)
        assert (await talking.until("conversation.item.truncated"))["audio_end_ms"] == 760
        await talking.connection.conversation.item.retrieve(item_id=item["id"])
        kept = (await talking.until("conversation.item.retrieved"))["item"]["content"][0]["transcript"]
        assert kept.strip(" ,") == ", ".join(NUMBERS[:3])
        await talking.hear(silence(0.8))
        answer = (await talking.until("response.done"))["response"]
        assert answer["output"][0]["content"][0]["transcript"] == "you said stop"
        order = talking.types()
        after = order.index("response.done")
        late = [e for e in talking.events[after:] if e.get("response_id") == created]
        assert late == []


async def test_function_call(toy_server: Serving) -> None:
    async with talk(toy_server) as talking:
        await talking.update({"type": "realtime", "output_modalities": ["text"], "tools": [CALL]})
        await talking.write("call")
        await talking.connection.response.create()
        call = (await talking.until("response.done"))["response"]["output"][0]
        assert (call["type"], call["name"], call["status"]) == ("function_call", "get_weather", "completed")
        assert json.loads(call["arguments"]) == {"city": "Paris"}
        output: Any = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        await talking.connection.conversation.item.create(item=output)
        await talking.connection.response.create()
        done = (await talking.until("response.done"))["response"]
        assert done["output"][0]["content"][0]["text"] == "it is sunny"


async def test_errors_leave_the_session_alive(toy_server: Serving) -> None:
    async with talk(toy_server) as talking:
        connection = talking.connection
        bad: list[tuple[str, str]] = [
            ("{nonsense", "invalid_json"),
            ('{"type": "no.such.event", "event_id": "e1"}', "invalid_value"),
            ('{"type": "input_audio_buffer.append", "audio": "!!!"}', "invalid_value"),
            ('{"type": "input_audio_buffer.append", "audio": "AAAA", "event_id": "odd"}', "invalid_value"),
            ('{"type": "conversation.item.truncate", "item_id": "no", "audio_end_ms": 1}', ""),
            ('{"type": "session.update", "session": {"type": "realtime", "voice": 1}}', "unknown_parameter"),
            ('{"type": "input_audio_buffer.commit"}', "input_audio_buffer_commit_empty"),
            ('{"type": "response.cancel"}', "response_cancel_not_active"),
        ]
        for frame, code in bad:
            await connection.send_raw(frame)
            error = (await talking.until("error"))["error"]
            assert not code or error["code"] == code, error
        assert [e["error"]["event_id"] for e in talking.events if e["type"] == "error"].count("odd") == 1
        await talking.update({"type": "realtime", "output_modalities": ["text"]})
        await talking.write("fail")
        await connection.response.create()
        failed = (await talking.until("response.done"))["response"]
        assert failed["status"] == "failed"
        assert failed["status_details"]["error"]["message"]
        await talking.write("hello")
        await connection.response.create()
        assert (await talking.until("response.done"))["response"]["status"] == "completed"


async def test_length_is_bounded(toy_server: Serving) -> None:
    async with talk(toy_server) as talking:
        await talking.write("long")
        await talking.connection.response.create(response={"output_modalities": ["text"], "max_output_tokens": 10})
        done = (await talking.until("response.done"))["response"]
        assert done["status"] == "incomplete"
        assert done["status_details"] == {"type": "incomplete", "reason": "max_output_tokens"}


async def test_g711_both_ways(toy_server: Serving) -> None:
    async with talk(toy_server) as talking:
        coded = {"type": "audio/pcmu"}
        audio = {"input": {"format": coded, "turn_detection": None}, "output": {"format": coded}}
        await talking.update({"type": "realtime", "audio": audio})
        from media.frames import from_bytes, to_int16
        from media.g711 import mulaw_encode
        from media.resample import resample

        await talking.hear(mulaw_encode(to_int16(resample(from_bytes(spoken("yes")), RATE, 8000))))
        await talking.connection.input_audio_buffer.commit()
        await talking.connection.response.create()
        done = (await talking.until("response.done"))["response"]
        assert done["output"][0]["content"][0]["transcript"] == "you said yes"
        assert len(talking.sound()) == pytest.approx(3 * 8000 // 4, abs=4)


async def test_semantic_vad_waits_where_the_turn_model_expects_more(toy_server: Serving) -> None:
    async with talk(toy_server) as talking:
        detection = {"type": "semantic_vad", "eagerness": "high"}
        await talking.update({"type": "realtime", "audio": {"input": {"turn_detection": detection}}})
        await talking.hear(spoken("yes") + silence(2.5) + spoken("again") + silence(2.5))
        waits = []
        for _ in range(2):
            stopped = await talking.until("input_audio_buffer.speech_stopped")
            committed = await talking.until("input_audio_buffer.committed")
            waits.append((stopped["audio_end_ms"], committed["item_id"]))
            await talking.until("response.done")
        assert waits[0][1] != waits[1][1]


async def turn(server: Serving, words: tuple[str, ...]) -> tuple[str, str, bytes]:
    """What was heard, what was answered, and its sound."""
    async with talk(server) as talking:
        await talking.update({"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}})
        await talking.hear(spoken(*words) + silence(1.0))
        done = (await talking.until("response.done"))["response"]
        heard = next(e for e in talking.events if e["type"].endswith("transcription.completed"))
        return heard["transcript"], done["output"][0]["content"][0]["transcript"], talking.sound()


async def test_four_sessions_at_once_are_as_each_alone(toy_server: Serving) -> None:
    said = [("count",), ("hello", "name"), ("yes",), ("sing", "no", "sing")]
    together = await asyncio.gather(*(turn(toy_server, words) for words in said))
    alone = [await turn(toy_server, words) for words in said]
    assert together == alone
    assert [heard for heard, _, _ in alone] == [" ".join(words) for words in said]


async def test_sound_in_an_item_is_transcribed_and_answered(toy_server: Serving) -> None:
    async with talk(toy_server) as talking:
        await talking.update({"type": "realtime", "output_modalities": ["text"]})
        audio = base64.b64encode(spoken("hello", "yes")).decode()
        item: Any = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": audio}]}
        await talking.connection.conversation.item.create(item=item)
        await talking.connection.response.create()
        done = (await talking.until("response.done"))["response"]
        assert done["output"][0]["content"][0]["text"] == "you said hello yes"
        item_id = next(e for e in talking.events if e["type"] == "conversation.item.added")["item"]["id"]
        await talking.connection.conversation.item.retrieve(item_id=item_id)
        kept = (await talking.until("conversation.item.retrieved"))["item"]
        [part] = kept["content"]
        back = np.frombuffer(base64.b64decode(part.pop("audio")), "<i2").astype(int)
        given = np.frombuffer(spoken("hello", "yes"), "<i2").astype(int)
        assert len(back) == len(given)
        assert np.abs(back - given)[100:-100].mean() < 0.02 * np.abs(given).max()
        assert part == {"type": "input_audio", "transcript": "hello yes"}


async def test_sessions_of_type_transcription(toy_server: Serving) -> None:
    client = AsyncOpenAI(base_url=f"{toy_server.url}/v1", api_key="none", max_retries=0)
    async with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        talking = Talk(connection)
        created = await talking.next()
        assert created["session"]["type"] == "transcription"
        wanted: Any = {"type": "transcription", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}
        await connection.session.update(session=wanted)
        await talking.until("session.updated")
        await talking.hear(spoken("hello", "name") + silence(1.0))
        heard = await talking.until("conversation.item.input_audio_transcription.completed")
        assert heard["transcript"] == "hello name"
        assert "response.created" not in talking.types()
    await client.close()
