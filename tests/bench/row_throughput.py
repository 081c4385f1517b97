"""The language model at 1, 4, 8 and 16 sessions: each reads a long prompt in pieces and answers, all at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from mstar.client import Client, Session
from tests.bench.report import Metric, Row, Sample
from tests.bench.runtime import followed, running

SESSIONS = (1, 4, 8, 16)
TOKENS = 32
TEXT = Path(__file__).parents[1] / "data" / "text" / "plain_english.txt"
PROMPT_CHARS = 1200


def run(*, quick: bool) -> Row:
    """Five rounds of every number of sessions; one of the first two if quick."""
    counts = SESSIONS[:2] if quick else SESSIONS
    samples = asyncio.run(_rounds(1 if quick else 5, counts))
    metrics = []
    for count in counts:
        mine = [each for each in samples if each["sessions"] == count]
        for what, unit in (("tokens_per_s", "tokens/s"), ("prompt_per_s", "tokens/s"), ("first_s", "s")):
            metrics.append(Metric(f"{what}.{count}", unit, tuple(float(each[what]) for each in mine)))
    return Row("throughput", tuple(metrics), tuple(samples), notes=("prompts of other texts each: nothing is shared",))


async def _rounds(count: int, counts: Sequence[int]) -> list[Sample]:
    text = TEXT.read_text()
    async with running("voice") as client:
        await _together(client, text, 1, 0)
        return [
            await _together(client, text, sessions, 1 + turn * 20 + at)
            for turn in range(count)
            for at, sessions in enumerate(counts)
        ]


async def _together(client: Client, text: str, count: int, number: int) -> Sample:
    """`count` sessions begin at once; times are from there on."""
    sessions = [await client.open("voice") for _ in range(count)]
    began = time.perf_counter()
    firsts: list[float] = []
    prompts: list[int] = []
    generated: list[int] = []

    async def answer(session: Session, which: int) -> None:
        begin = (number * 997 + which * 331) % max(1, len(text) - PROMPT_CHARS)
        words = text[begin : begin + PROMPT_CHARS]
        history = [{"role": "user", "content": f"{number}.{which}. Go on with this text. {words}"}]
        given = {"history": history, "tools": []}
        arrivals = await followed(session.start("answer_text", given, {"max_tokens": TOKENS}))
        firsts.append(next(each.at for each in arrivals if each.output == "text") - began)
        [usage] = [each for each in arrivals if each.output == "usage"]
        prompts.append(int(usage.value["prompt"]) - int(usage.value["reused"]))
        generated.append(int(usage.value["generated"]))

    async with asyncio.TaskGroup() as group:
        for which, session in enumerate(sessions):
            group.create_task(answer(session, which))
    seconds = time.perf_counter() - began
    for session in sessions:
        await session.close()
    return {
        "sessions": count,
        "tokens_per_s": sum(generated) / seconds,
        "prompt_per_s": sum(prompts) / max(firsts),
        "first_s": sorted(firsts)[len(firsts) // 2],
        "prompt_tokens": sum(prompts),
        "tokens": sum(generated),
    }
