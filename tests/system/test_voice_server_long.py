"""Long and rough use of the voice server: conversations beyond the context, clients that leave at any moment."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from media.frames import to_bytes
from models.llama.checkpoint import open_checkpoint
from models.llama.prompt import ChatTemplate, read_chat_template
from models.voice.model import CONVERSATION
from tests.clients.conftest import Serving
from tests.clients.test_leaving import held, quiet
from tests.system.voice_client import calling, numbers, pcm16, said, silence, speech

pytestmark = pytest.mark.slow

TURNS = 60
VISITS = 200
FILLER = "Please think about the harbour, the ferry, the village, the lake and the old bridge before you answer. " * 2


@pytest.fixture(scope="module")
def template(smollm2: Path) -> ChatTemplate:
    return read_chat_template(open_checkpoint(smollm2))


@pytest.mark.parametrize("truncation", ["auto", {"type": "retention_ratio", "retention_ratio": 0.5}], ids=str)
async def test_sixty_turns_go_on(voice_server: Serving, template: ChatTemplate, truncation: Any) -> None:
    whole: list[dict[str, str]] = []
    prompts, cached = [], []
    async with calling(
        voice_server, output_modalities=["text"], max_output_tokens=8, truncation=truncation, instructions="Be kind."
    ) as caller:
        for number in range(TURNS):
            whole.append({"role": "user", "content": f"Question {number}. {FILLER}"})
            await caller.write(whole[-1]["content"])
            response = await caller.respond()
            assert response["status"] in ("completed", "incomplete")
            whole.append({"role": "assistant", "content": said(response)})
            prompts.append(response["usage"]["input_tokens"])
            cached.append(response["usage"]["input_token_details"]["cached_tokens"])
    assert max(prompts) < CONVERSATION.context
    assert len(template.ids(whole)) > CONVERSATION.context + 500  # so it had to be cut
    cuts = [n for n in range(1, TURNS) if prompts[n] < prompts[n - 1]]
    assert 1 <= len(cuts) <= 10
    kept = min(prompts[n] / prompts[n - 1] for n in cuts)
    assert kept == pytest.approx(0.8 if truncation == "auto" else 0.5, abs=0.15)
    steady = [n for n in range(1, TURNS) if n not in cuts]
    assert all(cached[n] >= prompts[n - 1] for n in steady)  # whatever is not cut is read once


async def test_without_truncation_a_conversation_ends_at_the_context(voice_server: Serving) -> None:
    async with calling(voice_server, output_modalities=["text"], max_output_tokens=8, truncation="disabled") as caller:
        prompts = []
        for number in range(TURNS):
            await caller.write(f"Question {number}. {FILLER}")
            response = await caller.respond()
            if response["status"] == "failed":
                break
            prompts.append(response["usage"]["input_tokens"])
        assert response["status_details"]["error"]["code"] == "context_length_exceeded"
        assert prompts == sorted(prompts)
        assert prompts[-1] > CONVERSATION.context // 2
        first = caller.of("conversation.item.added")[0]["item"]["id"]
        await caller.send("conversation.item.delete", item_id=first)
        await caller.until("conversation.item.deleted")
        await caller.update(truncation="auto")
        assert (await caller.respond())["status"] in ("completed", "incomplete")


async def visit(server: Serving, choice: random.Random) -> None:
    """Part of a conversation, left in the middle: politely, or by cutting the line."""
    question = base64.b64encode(to_bytes(speech("Tell me a story about a fox."))).decode()
    pause = base64.b64encode(to_bytes(silence(choice.choice((0.1, 0.3, 0.8))))).decode()
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{server.url}/v1/realtime?events=ext") as ws:
        for _ in range(choice.randrange(1, 5)):
            for event in choice.choice(
                (
                    [
                        ("input_audio_buffer.append", {"audio": question}),
                        ("input_audio_buffer.append", {"audio": pause}),
                    ],
                    [("input_audio_buffer.append", {"audio": pause})],
                    [
                        (
                            "conversation.item.create",
                            {
                                "item": {
                                    "type": "message",
                                    "role": "user",
                                    "content": [{"type": "input_text", "text": "Hi."}],
                                }
                            },
                        ),
                        ("response.create", {}),
                    ],
                    [("response.cancel", {})],
                    [("input_audio_buffer.clear", {})],
                )
            ):
                await ws.send_str(json.dumps({"type": event[0], **event[1]}))
            for _ in range(choice.randrange(12)):
                try:
                    await asyncio.wait_for(ws.receive(), choice.random())
                except TimeoutError:  # it may have said all it has to say
                    break
        if choice.random() < 0.5:
            ws._writer.transport.abort()


async def test_random_disconnects_leave_nothing_behind(voice_server: Serving) -> None:
    async with calling(voice_server, output_modalities=["text"], max_output_tokens=4) as caller:
        await caller.write("Hello.")
        await caller.respond()
    choice = random.Random(11)
    before = await quiet(voice_server)
    fired = numbers(voice_server, "firings")
    for _ in range(VISITS // 4):
        await asyncio.gather(*(visit(voice_server, choice) for _ in range(4)))
    assert await quiet(voice_server, before) == pytest.approx(before)
    assert numbers(voice_server, "firings") > fired + VISITS
    async with calling(voice_server) as caller:
        await caller.write("What is the capital of France?")
        response = await caller.respond()
        assert said(response) == "The capital of France is Paris."
        assert abs(pcm16(caller.sound())).max() > 0.1
    assert held(voice_server).keys() >= before.keys()
