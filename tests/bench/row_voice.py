"""Voice to voice: from the last sample of a question to the first audible sample of its answer, beside the cascade.

Turn by turn: the server with server_vad, the server with semantic_vad, the cascade; the other two rest meanwhile. The
parts of a turn are those of a further conversation, because telling them costs the server something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

from mstar.tensors import Value
from tests.bench.call import Answer, Caller, calling
from tests.bench.cascade import Cascade
from tests.bench.playout import heard_at
from tests.bench.questions import QUESTIONS, spoken
from tests.bench.report import Gate, Metric, Row, Sample
from tests.bench.serving import Served, served
from tests.bench.sound import Pcm
from tests.bench.turns import parts

KINDS = ("server_vad", "semantic_vad")
MAX_TOKENS = 64
HEARD_SECONDS = 1.0
"""How much of an answer is listened to before the next question."""
TURNS = 5
"""Turns of a conversation; the next question begins a new one."""


def run(*, quick: bool) -> Row:
    """Twenty turns of each kind, three if quick."""
    texts = QUESTIONS[:3] if quick else QUESTIONS
    sounds = spoken(texts)
    cascade = Cascade()
    with served() as server:
        samples = asyncio.run(_all(server, cascade, texts, sounds))
    return Row("voice", metrics(samples), tuple(samples), notes=_notes(samples))


def metrics(samples: list[Sample]) -> tuple[Metric, ...]:
    """Milliseconds of each way, and ratios of the medians with their floors."""

    def of(way: str, what: str = "voice_ms") -> tuple[float, ...]:
        return tuple(float(sample[what]) for sample in samples if sample["way"] == way)

    cascade = Metric("cascade", "ms", of("cascade"))
    ways = tuple(Metric(way, "ms", of(way)) for way in KINDS)
    ratios = tuple(
        Metric(f"{way.name}/cascade", "of p50", (way.statistic("p50") / cascade.statistic("p50"),), gate)
        for way, gate in zip(ways, (Gate("p50", 0.6, 0.45), Gate("p50", 0.5, 0.35)), strict=True)
    )
    return (*ways, cascade, *ratios)


async def _all(server: Served, cascade: Cascade, texts: Sequence[str], sounds: Sequence[Pcm]) -> list[Sample]:
    samples: list[Sample] = []
    for first in range(0, len(texts), TURNS):
        some = slice(first, first + TURNS)
        samples += await _conversation(server, cascade, texts[some], sounds[some])
    return [*samples, *await _conversation(server, None, texts[:TURNS], sounds[:TURNS])]


async def _conversation(
    server: Served, cascade: Cascade | None, texts: Sequence[str], sounds: Sequence[Pcm]
) -> list[Sample]:
    """The same questions to all three; without a cascade to the server alone, which then tells a turn's parts."""
    telling = cascade is None
    samples: list[Sample] = []
    async with AsyncExitStack() as stack:
        callers = [
            await stack.enter_async_context(calling(server, session=_session(kind), extended=telling)) for kind in KINDS
        ]
        for caller in callers:
            caller.open.clear()
        history: list[dict[str, Value]] = []
        for text, sound in zip(texts, sounds, strict=True):
            for kind, caller in zip(KINDS, callers, strict=True):
                way = kind + TOLD if telling else kind
                samples.append({"way": way, "question": text, **await _turn(caller, sound)})
            if cascade is not None:
                turn = await asyncio.to_thread(cascade.turn, sound, history, MAX_TOKENS)  # the calls stay alive
                times = {f"{name}_ms": value * 1000 for name, value in asdict(turn).items() if name not in WORDS}
                samples.append({"way": "cascade", "question": text, "heard": turn.heard, "said": turn.said, **times})
    return samples


TOLD = ", traced"
WORDS = ("heard", "said")


def _session(kind: str) -> dict[str, Any]:
    return {"max_output_tokens": MAX_TOKENS, "audio": {"input": {"turn_detection": {"type": kind}}}}


async def _turn(caller: Caller, sound: Pcm) -> Sample:
    """One question to the server; its answer is stopped after a second of it.

    An answer that begins inside the question is `early`: the question interrupts it, and another one follows.
    """
    before = len(caller.answers)
    caller.open.set()
    end = await caller.say(sound)

    def answers() -> list[Answer]:
        return [each for each in caller.answers[before:] if each.deltas and each.deltas[0].at >= end]

    await caller.until(lambda: any(heard_at(each.deltas) is not None for each in answers()))
    answer = answers()[-1]
    heard = heard_at(answer.deltas)
    assert heard is not None
    await asyncio.sleep(HEARD_SECONDS)
    caller.open.clear()
    events = list(caller.events)
    await caller.stop(HEARD_SECONDS)
    early = len(caller.answers) - before - 1
    times = parts([event for _, event in events])
    return {"voice_ms": (heard - end) * 1000, "said": answer.text, "early": early, **times}


def _notes(samples: list[Sample]) -> tuple[str, ...]:
    """Medians of the parts of a turn, for each way."""
    notes = []
    for way in (*KINDS, *(kind + TOLD for kind in KINDS), "cascade"):
        mine = [sample for sample in samples if sample["way"] == way]
        names = dict.fromkeys(name for sample in mine for name in sample if name.endswith("_ms") or "steps_" in name)
        medians = {
            name: Metric(name, "ms", tuple(float(s[name]) for s in mine if name in s)).statistic("p50")
            for name in names
        }
        notes.append(
            f"{way}, p50: " + ", ".join(f"{name.removesuffix('_ms')} {value:.0f}" for name, value in medians.items())
        )
    return tuple(notes)
