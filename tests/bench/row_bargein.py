"""Barge-in: from the first sample of an interruption to the last sound of the answer that it interrupts.

Three other sessions are being answered meanwhile, each anew as soon as its answer is complete.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.bench.call import Caller, calling
from tests.bench.questions import INTERRUPTION, STORIES, spoken
from tests.bench.report import Gate, Metric, Row, Sample
from tests.bench.serving import Served, served
from tests.bench.sound import RATE, Pcm, first_loud

HEARD_SECONDS = 1.5
"""How much of the answer is heard before it is interrupted."""
SESSION: dict[str, Any] = {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}
ASKING: dict[str, Any] = {"audio": {"input": {"turn_detection": None}}}
MOST_MS = 250


def run(*, quick: bool) -> Row:
    """Twenty interruptions, three if quick."""
    interruption, question = spoken((INTERRUPTION, STORIES[0]))
    with served() as server:
        samples = asyncio.run(_interrupted(server, question, interruption, 3 if quick else 20))
    last = Metric("last_sound", "ms", tuple(float(sample["last_sound_ms"]) for sample in samples), Gate("p95", MOST_MS))
    told = Metric("speech_started", "ms", tuple(float(sample["told_ms"]) for sample in samples), Gate("p95", MOST_MS))
    return Row("bargein", (last, told), tuple(samples))


async def _interrupted(server: Served, question: Pcm, interruption: Pcm, count: int) -> list[Sample]:
    samples: list[Sample] = []
    async with asyncio.TaskGroup() as group:
        others = [group.create_task(_keep_answering(server, story)) for story in STORIES[1:]]
        while len(samples) < count:
            async with calling(server, session=SESSION) as caller:
                samples.append(await _interrupt(caller, question, interruption))
        for other in others:
            other.cancel()
    return samples


async def _keep_answering(server: Served, story: str) -> None:
    """A session that listens to long answers by text questions."""
    while True:
        async with calling(server, session=ASKING, feeding=False) as caller:
            content = [{"type": "input_text", "text": story}]
            await caller.send(
                type="conversation.item.create", item={"type": "message", "role": "user", "content": content}
            )
            await caller.send(type="response.create")
            await caller.until(lambda: bool(caller.answers) and caller.answers[-1].done is not None, 300)


async def _interrupt(caller: Caller, question: Pcm, interruption: Pcm) -> Sample:
    """Ask, hear the answer for a while, speak into it."""
    await caller.say(question)
    await caller.until(lambda: bool(caller.answers) and bool(caller.answers[-1].deltas))
    answer = caller.answers[-1]
    await asyncio.sleep(HEARD_SECONDS)
    if answer.done is not None:
        raise RuntimeError(f"the answer {answer.text!r} was over before it could be interrupted")
    before = len(caller.events)
    onset = await caller.say(interruption) - len(interruption) / RATE
    await caller.until(lambda: answer.done is not None)
    told = next(at for at, event in caller.events[before:] if event["type"] == "input_audio_buffer.speech_started")
    sounding = [delta.at for delta in answer.deltas if first_loud(delta.pcm) is not None]
    return {"last_sound_ms": (sounding[-1] - onset) * 1000, "told_ms": (told - onset) * 1000, "status": answer.status}
