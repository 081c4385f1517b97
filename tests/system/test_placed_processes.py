"""The toy family on several processes: nodes, replicas and state apart, over each transport, as in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from models.toy.model import FAMILY
from mstar.client import Emission, RequestEnded, Session
from mstar.client.launch import Launched, launch
from mstar.local import LocalSystem
from mstar.placement import placement_of
from tests.system.toy import end_of, sound_of, text_of, values

NODES: dict[str, Any] = {
    "prompt": "one",
    "LM": {"prefill": "one", "prefill_heard": "one", "warm": "one"},
    "predict": "one",
    "combine": "one",
    "tone": ["one", "two"],
    "vocoder": ["one", "two"],
}
"""On two ranks: prompts are read on one and answered on the other, a loop is divided, speech has replicas."""
STATE = np.linspace(0.0, 1.0, 20_000)
"""A rollout's state of 160 kB: too large for a message."""

Answers = tuple[str, bytes, list[bytes], bytes]


def ask(text: str) -> dict[str, object]:
    return {"history": [{"role": "user", "content": text}], "tools": []}


@pytest_asyncio.fixture(params=["shared", pytest.param("tcp", marks=pytest.mark.slow)])
async def launched(request: pytest.FixtureRequest) -> AsyncIterator[Launched]:
    placement = placement_of(
        {
            "ranks": {"two": {}, "one": {}},
            "families": {"toy": {"default": "two", "nodes": NODES}},
            "transport": request.param,
            "oversubscribe": True,
        }
    )
    running = launch({"toy": {"module": "models.toy.model", "settings": {}}}, placement)
    await running.ready()
    yield running
    await running.stop()


def answers_of(speech: list[Emission | RequestEnded], rolled: list[Emission | RequestEnded]) -> Answers:
    assert end_of(speech).status == end_of(rolled).status == "done"
    [picture] = values(rolled, "picture")
    imagined = [np.asarray(value).tobytes() for value in values(rolled, "imagined")]
    return text_of(speech), sound_of(speech).tobytes(), imagined, np.asarray(picture["latent"]).tobytes()


def expected() -> Answers:
    system = LocalSystem({"toy": FAMILY.graph({})})
    session = system.open("toy")
    speech, rolled = session.start("answer_speech", ask("count")), session.start("roll", {"state": STATE})
    speech.credit("audio", 10**9)
    system.run()
    return answers_of(speech.drain(), rolled.drain())


async def turn(session: Session) -> Answers:
    speech, rolled = session.start("answer_speech", ask("count")), session.start("roll", {"state": STATE})
    speech.credit("audio", 10**9)
    return answers_of([each async for each in speech], [each async for each in rolled])


async def census(launched: Launched) -> list[dict[str, int]]:
    told = []
    for name in launched.processes:
        value = await launched.client.ask("census", of=name)
        assert isinstance(value, dict)
        told.append(dict(value))
    return told


def is_private(launched: Launched) -> bool:
    """Whether the folder of the sockets is its user's alone."""
    return launched.directory.stat().st_mode & 0o777 == 0o700


def shared_files() -> list[str]:
    return sorted(path.name for path in Path("/dev/shm").iterdir())


async def counters(launched: Launched) -> dict[str, int]:
    """Of both workers, summed."""
    total: dict[str, int] = {}
    for name in ("worker.one", "worker.two"):
        value = await launched.client.ask("counters", of=name)
        assert isinstance(value, dict)
        for key, count in value.items():
            total[key] = total.get(key, 0) + count
    return total


@pytest.mark.asyncio
async def test_what_is_apart_gives_the_same_and_leaves_nothing(launched: Launched) -> None:
    assert is_private(launched)
    files, baseline = shared_files(), await census(launched)
    sessions = [await launched.client.open("toy") for _ in range(2)]
    assert await asyncio.gather(*(turn(session) for session in sessions)) == [expected()] * 2
    cut = sessions[0].start("answer_speech", ask("long"))
    cut.credit("audio", 10**9)
    async for event in cut:
        if isinstance(event, Emission) and event.output == "audio":
            cut.interrupt()
    assert cut.ended is not None
    assert cut.ended.status == "cancelled"
    moved = await counters(launched)
    assert moved["images_given"] >= 2
    assert moved["shared_bytes"] > 20 * STATE.nbytes  # of two rollouts, eight passes each
    assert moved["late_messages"] < 20
    for session in sessions:
        await session.close()
    async with asyncio.timeout(60):  # the workers hear of the closing through the conductor
        while await census(launched) != baseline:
            pass
    assert shared_files() == files
