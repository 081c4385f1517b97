"""What the model is asked next: words that were heard, conversations beyond its context, changes in the middle."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from models.toy.language import NUMBERS, render
from models.toy.model import CONVERSATION
from tests.clients.conftest import Serving, serving
from tests.clients.raw import Raw, connected
from tests.clients.tones import RATE, silence, spoken

TURNS = 60


@pytest.fixture(scope="module")
def strict_server() -> Iterator[Serving]:
    yield from serving("toy", "--strict-truncate")


async def write(raw: Raw, text: str, **params: Any) -> None:
    """A message, and the wish for an answer."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    await raw.send({"type": "conversation.item.create", "item": item})
    await raw.send({"type": "response.create", "response": params})


async def hear(raw: Raw, sound: bytes) -> None:
    await raw.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(sound).decode()})


async def update(raw: Raw, **session: Any) -> None:
    await raw.send({"type": "session.update", "session": {"type": "realtime", **session}})
    await raw.until("session.updated")


async def done(raw: Raw) -> dict[str, Any]:
    return dict((await raw.until("response.done"))["response"])


def said(response: dict[str, Any]) -> str:
    part = response["output"][0]["content"][0]
    return str(part.get("transcript", part.get("text")))


@pytest.mark.parametrize("heard_ms", [100, 760, 1490, 1700])
async def test_the_next_prompt_holds_exactly_the_words_that_were_heard(toy_server: Serving, heard_ms: int) -> None:
    """A word takes 250 ms; the script answers `again` with what the prompt has of the answer before."""
    async with connected(toy_server) as raw:
        await raw.next()
        await write(raw, "count")
        samples = 0
        while samples < 1.8 * RATE:
            samples += len(base64.b64decode((await raw.until("response.output_audio.delta"))["delta"])) // 2
        await hear(raw, spoken("again"))
        await raw.until("input_audio_buffer.speech_started")
        cancelled = await done(raw)
        assert cancelled["status_details"]["reason"] == "turn_detected"
        item = cancelled["output"][0]["id"]
        cut = {"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": heard_ms}
        await raw.send(cut)
        await raw.until("conversation.item.truncated")
        await raw.send({"type": "conversation.item.retrieve", "item_id": item})
        kept = (await raw.until("conversation.item.retrieved"))["item"]["content"][0]["transcript"]
        assert abs(len(kept.replace(",", "").split()) - heard_ms / 250) <= 1
        assert kept.strip(" ,") == ", ".join(NUMBERS[: heard_ms // 250])
        await hear(raw, silence(0.8))
        answer = await done(raw)
        history = [{"role": "user", "content": "count"}, {"role": "assistant", "content": kept}]
        known = [each for each in history if each["content"]]  # an answer of which nothing was heard was not given
        assert answer["usage"]["input_tokens"] == len(render(known, [], "again"))
        assert said(answer) == (f"again {kept}" if kept else "nothing yet")


@pytest.mark.parametrize("truncation", ["auto", {"type": "retention_ratio", "retention_ratio": 0.5}], ids=str)
async def test_sixty_turns_go_on(toy_server: Serving, truncation: Any) -> None:
    async with connected(toy_server) as raw:
        await update(raw, output_modalities=["text"], truncation=truncation)
        prompts = []
        for number in range(TURNS):
            await write(raw, f"{'hello ' * 12}{number}", max_output_tokens=40)
            response = await done(raw)
            assert said(response).startswith("you said hello")
            prompts.append(response["usage"]["input_tokens"])
    assert max(prompts) <= CONVERSATION.context
    cuts = [n for n in range(1, TURNS) if prompts[n] < prompts[n - 1]]
    assert 2 <= len(cuts) <= 30


async def test_without_truncation_a_conversation_ends_at_the_context(toy_server: Serving) -> None:
    async with connected(toy_server) as raw:
        await update(raw, output_modalities=["text"], truncation="disabled")
        response: dict[str, Any] = {"status": "completed"}
        turns = 0
        while response["status"] != "failed":
            await write(raw, "hello " * 12, max_output_tokens=40)
            response = await done(raw)
            turns += 1
            assert turns < TURNS
        assert turns > 3
        assert response["status_details"]["error"]["code"] == "context_length_exceeded"
        await update(raw, truncation="auto")
        await write(raw, "hello")
        assert said(await done(raw)) == "you said hello"


async def test_truncation_beyond_the_end(toy_server: Serving, strict_server: Serving) -> None:
    """Players count in frames: the end is taken, or refused where that is asked for; the session lives."""
    for server, strict in ((toy_server, False), (strict_server, True)):
        async with connected(server) as raw:
            await raw.next()
            await write(raw, "yes")
            item = (await done(raw))["output"][0]["id"]
            cut = {"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "event_id": "e"}
            await raw.send({**cut, "audio_end_ms": 10**6})
            if strict:
                error = (await raw.until("error"))["error"]
                assert (error["code"], error["param"], error["event_id"]) == ("invalid_value", "audio_end_ms", "e")
            else:
                assert (await raw.until("conversation.item.truncated"))["audio_end_ms"] == 750
            await write(raw, "again")
            assert said(await done(raw)) == "again you said yes"


async def test_updates_in_the_middle_of_a_response(toy_server: Serving) -> None:
    async with connected(toy_server) as raw:
        await raw.next()
        await write(raw, "count")
        await raw.until("response.output_audio.delta")
        voice = {"type": "realtime", "audio": {"output": {"voice": "other"}}}
        await raw.send({"type": "session.update", "session": voice, "event_id": "late"})
        error = (await raw.until("error"))["error"]
        assert (error["code"], error["event_id"]) == ("cannot_update_voice", "late")
        await raw.send({"type": "response.create", "event_id": "second"})
        error = (await raw.until("error"))["error"]
        assert (error["code"], error["event_id"]) == ("conversation_already_has_active_response", "second")
        await update(raw, instructions="Be brief.", output_modalities=["text"])
        response = await done(raw)
        assert response["output_modalities"] == ["audio"]  # what it began with
        assert said(response) == ", ".join(NUMBERS)
        await write(raw, "yes")
        response = await done(raw)
        assert (response["output_modalities"], said(response)) == (["text"], "you said yes")
