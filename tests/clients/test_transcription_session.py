"""`/v1/realtime?intent=transcription` with the stock SDK: what is said is told as it is said, and whole in the end."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from tests.clients.conftest import Serving
from tests.clients.speech import held, settles
from tests.clients.tones import silence, spoken

STRICT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
KIND = "conversation.item.input_audio_transcription"
SAID = ("hello", "weather", "yes", "no", "again", "stop", "name", "sing")


@pytest.mark.parametrize("detection", [{"type": "server_vad"}, None])
async def test_words_are_told_and_make_up_the_transcript(toy_server: Serving, detection: Any) -> None:
    baseline = held(toy_server)
    client = AsyncOpenAI(base_url=f"{toy_server.url}/v1", api_key="none", max_retries=0)
    events: list[dict[str, Any]] = []

    async with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:

        async def until(kind: str) -> dict[str, Any]:
            while True:
                event = json.loads(await asyncio.wait_for(connection.recv_bytes(), 60))
                STRICT.validate_python(event, strict=True)
                events.append(event)
                assert event["type"] != "error", event
                if event["type"] == kind:
                    return dict(event)

        async def hear(sound: bytes) -> None:
            await connection.input_audio_buffer.append(audio=base64.b64encode(sound).decode())

        assert (await until("session.created"))["session"]["type"] == "transcription"
        session: Any = {"type": "transcription", "audio": {"input": {"turn_detection": detection}}}
        await connection.session.update(session=session)
        await until("session.updated")
        sound = spoken(*SAID, each=0.4)
        if detection is None:
            half = len(sound) // 4 * 2
            for part in (sound[:half], sound[half:]):
                await hear(part)
            await connection.input_audio_buffer.commit()
        else:
            await hear(sound + silence(1.0))
        done = await until(f"{KIND}.completed")
    await client.close()
    assert done["transcript"] == " ".join(SAID)
    assert done["usage"]["type"] == "duration"
    assert "".join(event["delta"] for event in events if event["type"] == f"{KIND}.delta") == done["transcript"]
    assert {event["item_id"] for event in events if "item_id" in event} == {done["item_id"]}
    assert not [event for event in events if event["type"].startswith("response.")]
    assert settles(toy_server, baseline)
