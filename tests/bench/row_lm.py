"""The language model through the runtime beside llama.cpp on the same file: prefill, and decoding in batches."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from models.llama.checkpoint import open_checkpoint
from models.llama.prompt import ChatTemplate, read_chat_template
from models.pull import part_dir
from mstar.client import Client, Session
from mstar.tensors import Value
from tests.bench.peers import LanguageModel
from tests.bench.questions import STORIES
from tests.bench.report import Metric, Row, Sample
from tests.bench.runtime import followed, running

BATCHES = (1, 4, 8)
TOKENS = 64
TEXT = Path(__file__).parents[1] / "data" / "text" / "plain_english.txt"
PROMPT_CHARS = 2000
WHO = ("runtime", "llama.cpp")

History = list[dict[str, Value]]


def run(*, quick: bool) -> Row:
    """Five rounds, one if quick; ours and the peer's in turn."""
    samples = asyncio.run(_rounds(1 if quick else 5))
    metrics = []
    for what in ("prefill", *(f"decode_{batch}" for batch in BATCHES)):
        for who in WHO:
            mine = tuple(float(each["tokens_per_s"]) for each in samples if (each["what"], each["who"]) == (what, who))
            metrics.append(Metric(f"{what}.{who}", "tokens/s", mine))
    return Row("lm", tuple(metrics), tuple(samples))


async def _rounds(count: int) -> list[Sample]:
    template = read_chat_template(open_checkpoint(part_dir("smollm2")))
    peer = LanguageModel(slots=max(BATCHES))
    text = TEXT.read_text()
    samples: list[Sample] = []
    async with running("voice") as client:
        await _decode(client, 1)
        for turn in range(count):
            words = text[turn * 500 : turn * 500 + PROMPT_CHARS]
            history: History = [{"role": "user", "content": f"{turn}. Sum up this text. {words}"}]
            samples.append({"what": "prefill", "who": WHO[0], **await _prefill(client, history)})
            samples.append({"what": "prefill", "who": WHO[1], **_peer_prefill(peer, template.render(history))})
            for batch in BATCHES:
                samples.append({"what": f"decode_{batch}", "who": WHO[0], **await _decode(client, batch)})
                samples.append({"what": f"decode_{batch}", "who": WHO[1], **_peer_decode(peer, template, batch)})
    return samples


def _stories(batch: int) -> list[History]:
    return [[{"role": "user", "content": STORIES[i % len(STORIES)]}] for i in range(batch)]


async def _prefill(client: Client, history: History) -> Sample:
    session = await client.open("voice")
    began = time.perf_counter()
    arrivals = await followed(session.start("answer_text", {"history": history, "tools": []}, {"max_tokens": 1}))
    await session.close()
    [usage] = [arrival for arrival in arrivals if arrival.output == "usage"]
    prompt = int(usage.value["prompt"])
    return {"tokens": prompt, "tokens_per_s": prompt / (usage.at - began)}


def _peer_prefill(peer: LanguageModel, prompt: str) -> Sample:
    began = time.perf_counter()
    timings = peer.complete(prompt, 1, reuse=False)
    tokens = int(timings["prompt_n"])
    return {"tokens": tokens, "tokens_per_s": tokens / (time.perf_counter() - began)}


async def _decode(client: Client, batch: int) -> Sample:
    """Tokens a second while all sequences of the batch are decoded together, out of the worker's own records."""
    sessions = [await client.open("voice", trace=True) for _ in range(batch)]
    records: list[tuple[Any, ...]] = []
    for session in sessions:
        session.on_trace = lambda traced: records.extend(traced.records)

    async def answer(session: Session, history: History) -> None:
        await followed(session.start("answer_text", {"history": history, "tools": []}, {"max_tokens": TOKENS}))

    async with asyncio.TaskGroup() as group:
        for session, history in zip(sessions, _stories(batch), strict=True):
            group.create_task(answer(session, history))
    for session in sessions:
        await session.close()
    steps = sorted({float(row[0]) for row in records if row[3:6] == ("LM", "decode", batch)})
    if len(steps) < TOKENS // 4:
        raise RuntimeError(f"only {len(steps)} steps had a batch of {batch}")
    return {"steps": len(steps), "tokens_per_s": batch * (len(steps) - 1) / (steps[-1] - steps[0])}


def _peer_decode(peer: LanguageModel, template: ChatTemplate, batch: int) -> Sample:
    prompts = [template.render(history) for history in _stories(batch)]
    with ThreadPoolExecutor(batch) as pool:
        timings = list(pool.map(lambda prompt: peer.complete(prompt, TOKENS), prompts))
    slowest = max(float(each["predicted_ms"]) for each in timings) / 1000
    tokens = sum(int(each["predicted_n"]) - 1 for each in timings)  # the first comes with the prompt
    return {"tokens": tokens, "tokens_per_s": tokens / slowest}
