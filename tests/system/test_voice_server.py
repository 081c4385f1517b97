"""Spoken turns over a running server with real weights: where the work is done, and that company changes nothing."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from media.turns import TurnSettings
from models.llama.checkpoint import open_checkpoint
from models.llama.prompt import read_chat_template
from models.llama.tokenizer import read_tokenizer
from tests.clients.conftest import Serving
from tests.system.voice_client import Caller, calling, numbers, said, silence, speech

MIC_ITEM = 512
FRAME = 256 * 24_000 // 22_050
"""Samples that a frame of the voice makes at the session's rate."""
PAGE = 16
"""Positions of K/V that conversations share."""
HEARD = {"input": {"transcription": {"model": "whisper-1"}}}
FRANCE = "What is the capital of France?"
STORY = "Tell me a long story about a fox."


def spoken_turn(caller: Caller, text: str) -> Any:
    """Say a question with silence around it."""
    return caller.hear(silence(0.3), speech(text), silence(1.2))


def test_server_and_conductor_hold_no_torch(voice_server: Serving) -> None:
    running = {"server": voice_server.process, **voice_server.parties}
    held = {name: "libtorch" in Path(f"/proc/{process}/maps").read_text() for name, process in running.items()}
    workers = dict.fromkeys(("worker.ear", "worker.main", "worker.speech"), True)
    assert held == {"server": False, "conductor": False, **workers}


async def test_with_the_worker_stopped_nothing_is_heard_or_said(voice_server: Serving) -> None:
    """The ear has a worker of its own and goes on; `/readyz` says that what hears and thinks stands still."""
    main = voice_server.parties["worker.main"]
    async with calling(voice_server, audio=HEARD) as caller:
        os.kill(main, signal.SIGSTOP)
        try:
            await spoken_turn(caller, FRANCE)
            await caller.until("response.created")
            while (await asyncio.to_thread(voice_server.get, "/readyz"))[0] == 200:
                pass
            status, why = await asyncio.to_thread(voice_server.get, "/readyz")
            assert (status, why.partition(":")[0]) == (503, "worker.main")
            first = caller.of("conversation.item.done")[0]["item"]["id"]
            await caller.send("conversation.item.retrieve", item_id=first)
            await caller.until("conversation.item.retrieved")  # whatever was sent before it is here now
            kinds = [event["type"] for event in caller.events]
            assert kinds.count("input_audio_buffer.committed") == 1
            assert not [kind for kind in kinds if "transcription" in kind or "transcript" in kind or "delta" in kind]
        finally:
            os.kill(main, signal.SIGCONT)
        response = (await caller.until("response.done"))["response"]
        assert response["status"] == "completed"
        assert said(response) == "The capital of France is Paris."
        assert caller.transcript() == FRANCE
        assert len(caller.sound()) > 0
    while (await asyncio.to_thread(voice_server.get, "/readyz"))[0] != 200:
        pass


async def test_the_trace_of_a_turn(voice_server: Serving) -> None:
    async with calling(voice_server, "?events=ext", max_output_tokens=32) as caller:
        await spoken_turn(caller, "Please tell me a story about a fox and a bear.")
        await caller.until("response.done")
        rows = sorted(caller.records())  # each worker tells its own
    ears = [row for row in rows if row[3] == "vad"]
    assert [row[9] for row in ears] == list(range(len(ears)))  # one firing an item, in order
    assert {row[8] for row in ears} == {1}
    assert {row[1] for row in ears} == {"worker.ear"}
    [marks] = [event["marks"] for event in caller.of("mstar.turn")]
    assert len(ears) * MIC_ITEM >= marks["endpoint"]["sample"]
    assert marks["endpoint"]["sample"] - marks["speech_end"]["sample"] >= TurnSettings().silence_duration_ms * 16
    answer = [row for row in rows if row[2] == rows[-1][2]]
    fired = [row[3] for row in answer]
    last_token = len(fired) - 1 - fired[::-1].index("LM")
    assert fired.index("decoder") < last_token
    first = next(row for row in answer if row[3] == "decoder")
    assert 0 < first[8] <= 24
    sound = caller.of("response.output_audio.delta")[0]["delta"]
    assert 0 < len(base64.b64decode(sound)) // 2 <= 24 * FRAME
    assert {row[1] for row in answer} == {"worker.main", "worker.speech"}
    order = [fired.index(name) for name in ("cut", "encoder", "ASR", "transcript", "prompt", "LM", "text", "clauses")]
    assert order == sorted(order)


async def test_cancelling_after_the_first_chunk_leaves_the_rest_uncomputed(voice_server: Serving) -> None:
    async with calling(voice_server, "?events=ext", max_output_tokens=300) as caller:
        await caller.write(STORY)
        await caller.send("response.create")
        await caller.until("response.output_audio.delta")
        await caller.send("response.cancel")
        response = (await caller.until("response.done"))["response"]
        assert response["status"] == "cancelled"
        before = caller.records()
        cancelled = {row[2] for row in before}
        await caller.respond(output_modalities=["text"], max_output_tokens=16)
        while not any(row[2] not in cancelled for row in caller.records()):
            await caller.until("mstar.trace")
        rows = caller.records()
    late = [row for row in rows[len(before) :] if row[2] in cancelled]
    assert len(late) <= 4  # steps on their way while the word went there
    assert sum(row[3] == "LM" for row in rows if row[2] in cancelled) < 150
    frames = sum(row[8] for row in rows if row[2] in cancelled and row[3] == "decoder")
    assert frames * 256 / 22_050 < 6.0  # 300 tokens are more than a minute of speech


@dataclass(frozen=True, slots=True)
class Turn:
    """A spoken turn: transcript, answer, its sound, its tokens."""

    heard: str
    answer: str
    sound: bytes
    tokens: int
    prepared: bool = field(compare=False)


async def turn(server: Serving, question: str, **session: Any) -> Turn:
    """One spoken turn of a session of its own."""
    async with calling(server, "?events=ext", **session) as caller:
        await spoken_turn(caller, question)
        response = (await caller.until("response.done"))["response"]
        [marks] = [event["marks"] for event in caller.of("mstar.turn")]
        tokens = response["usage"]["output_tokens"]
        return Turn(caller.transcript(), said(response), caller.sound(), tokens, "prepared" in marks)


async def test_answers_are_the_same_with_and_without_preparation(voice_server: Serving) -> None:
    answers = []
    for prepare in (True, False):
        detection = {"type": "server_vad", "silence_duration_ms": 500, "prepare": prepare}
        audio = {"input": {**HEARD["input"], "turn_detection": detection}}
        answers.append(await turn(voice_server, FRANCE, audio=audio))
    assert answers[0] == answers[1]
    assert [each.prepared for each in answers] == [True, False]
    assert answers[0].answer == "The capital of France is Paris."


async def test_four_sessions_at_once_are_as_each_alone(voice_server: Serving) -> None:
    questions = (FRANCE, "List three colors.", "Why is the sky blue?", "Tell me a story about a bear.")

    async def ask(question: str) -> Turn:
        return await turn(voice_server, question, audio=HEARD, max_output_tokens=12)

    together = await asyncio.gather(*map(ask, questions))
    alone = [await ask(question) for question in questions]
    assert together == alone
    assert len({each.sound for each in alone}) == 4
    assert [each.heard.rstrip(".?") for each in alone] == [question.rstrip(".?") for question in questions]


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the common prefix."""
    shorter = min(len(left), len(right))
    return next((i for i in range(shorter) if left[i] != right[i]), shorter)


async def test_a_turn_prefills_the_prompt_minus_the_common_prefix(voice_server: Serving, smollm2: Path) -> None:
    checkpoint = open_checkpoint(smollm2)
    template, tokenizer = read_chat_template(checkpoint), read_tokenizer(checkpoint)
    history: list[dict[str, str]] = []
    cached: list[int] = []
    async with calling(voice_server, output_modalities=["text"], max_output_tokens=24) as caller:
        for question in ("What is the capital of France?", "And of Italy?", "And of Spain?", "List three of them."):
            history.append({"role": "user", "content": question})
            prompt = template.ids(history)
            before = await asyncio.to_thread(numbers, voice_server, "engine_prefilled_tokens")
            await caller.write(question)
            response = await caller.respond()
            prefilled = await asyncio.to_thread(numbers, voice_server, "engine_prefilled_tokens") - before
            usage = response["usage"]
            assert usage["input_tokens"] == len(prompt)
            reused = usage["input_token_details"]["cached_tokens"]
            assert prefilled == len(prompt) - reused
            if cached:
                assert reused == common(prompt, cached)
            else:  # whole pages of what other conversations began with
                assert reused % PAGE == 0
            cached = [*prompt, *tokenizer.encode(said(response))]
            history.append({"role": "assistant", "content": said(response)})
    assert len(cached) > 100
    async with calling(voice_server, output_modalities=["text"], max_output_tokens=24) as fresh:
        for message in history[:-1]:
            await fresh.write(message["content"], message["role"])
        response = await fresh.respond()
        assert response["usage"]["input_token_details"]["cached_tokens"] % PAGE == 0
        assert said(response) == history[-1]["content"]
