"""The runtime as real processes over ZeroMQ, with the toy family."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from mstar.bus.patience import Patience
from mstar.client import Emission, Request, RequestEnded, Slice
from mstar.client.launch import Launched, launch
from mstar.errors import Rejected
from mstar.placement import placement_of
from tests.system.toy import end_of, items, sound_of, text_of, tones, values

PLACEMENT = placement_of(
    {
        "ranks": {"ear": {"threads": 1}, "main": {"threads": 1}},
        "families": {"toy": {"default": "main", "nodes": {"vad": "ear", "turn": "ear"}}},
    }
)
FAMILIES = {"toy": {"module": "models.toy.model", "settings": {}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def launched() -> AsyncIterator[Launched]:
    running = launch(FAMILIES, PLACEMENT, patience=Patience(silent=600.0))  # one is stopped, and wanted back
    await running.ready()
    yield running
    await running.stop()
    assert all(process.returncode == 0 for process in running.processes.values())
    assert not running.directory.exists()


def ask(text: str) -> dict[str, object]:
    return {"history": [{"role": "user", "content": text}], "tools": []}


async def all_of(request: Request) -> list[Emission | RequestEnded]:
    return [event async for event in request]


async def census(launched: Launched) -> dict[str, dict[str, int]]:
    told = {}
    for name in launched.processes:
        value = await launched.client.ask("census", of=name)
        assert isinstance(value, dict)
        told[name] = dict(value)
    return told


@pytest.mark.asyncio(loop_scope="module")
async def test_a_spoken_turn_over_the_bus(launched: Launched) -> None:
    baseline = await census(launched)
    session = await launched.client.open("toy")
    listen = session.start("listen", positions={"mic": 0})
    rows = items(tones("hello name"))
    for index, row in enumerate(rows):
        session.feed("mic", index, row)
    request = session.start("answer_audio_speech", {"history": [], "tools": [], "audio": Slice("mic", 0, len(rows))})
    request.credit("audio", 10**9)
    events = await all_of(request)
    assert values(events, "transcript")[0]["text"] == "hello name"
    assert text_of(events) == "you said hello name"
    assert len(sound_of(events)) == 4 * 6000
    assert end_of(events).status == "done"
    heard = 0
    async for event in listen:
        assert isinstance(event, Emission)
        heard += 1
        if heard == len(rows):
            break
    await session.close()
    async with asyncio.timeout(30):  # the workers hear of the closing through the conductor
        while await census(launched) != baseline:
            pass


def test_the_conductor_holds_no_torch(launched: Launched) -> None:
    held = {
        name: "libtorch" in Path(f"/proc/{process.pid}/maps").read_text()
        for name, process in launched.processes.items()
    }
    assert held == {"conductor": False, "worker.ear": True, "worker.main": True}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_stopped_worker_emits_nothing_and_goes_on_where_it_was(launched: Launched) -> None:
    session = await launched.client.open("toy")
    main = launched.processes["worker.main"]
    os.kill(main.pid, signal.SIGSTOP)
    request = session.start("answer_speech", ask("count"))
    request.credit("audio", 10**9)
    assert await launched.client.ask("census") == {"sessions": 1, "requests": 1, "waiting": 0}  # the conductor is alive
    assert request.drain() == []
    os.kill(main.pid, signal.SIGCONT)
    events = await all_of(request)
    assert text_of(events).startswith("one, two")
    assert end_of(events).status == "done"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_family_that_can_not_be_loaded_starts_nothing() -> None:
    with pytest.raises(Rejected, match="no node 'nose'"):
        launch(
            FAMILIES,
            placement_of({"ranks": {"main": {}}, "families": {"toy": {"nodes": {"nose": "main"}}}}),
        )


@pytest.mark.asyncio(loop_scope="module")
async def test_an_unknown_family_is_refused(launched: Launched) -> None:
    before = dict(launched.client.sessions)
    with pytest.raises(Rejected, match="no family 'dance'"):
        await launched.client.open("dance")
    assert launched.client.sessions == before


@pytest.mark.asyncio(loop_scope="module")
async def test_sessions_at_once_are_answered_as_alone(launched: Launched) -> None:
    questions = ("hello", "count", "sing", "weather", "yes")

    async def turn(question: str) -> tuple[str, bytes]:
        session = await launched.client.open("toy")
        request = session.start("answer_speech", ask(question))
        request.credit("audio", 10**9)
        events = await all_of(request)
        await session.close()
        return text_of(events), sound_of(events).tobytes()

    together = await asyncio.gather(*(turn(question) for question in questions))
    alone = [await turn(question) for question in questions]
    assert together == alone


@pytest.mark.asyncio(loop_scope="module")
async def test_the_conductor_hears_of_walks_not_of_tokens(launched: Launched) -> None:
    async def messages() -> int:
        told = await launched.client.ask("counters")
        assert isinstance(told, dict)
        return int(told["messages"])

    session = await launched.client.open("toy")
    counts = []
    for question in ("hello", "long"):
        before = await messages()
        request = session.start("answer_text", ask(question))
        events = await all_of(request)
        assert len(events) > 5
        counts.append(await messages() - before)
    assert counts[0] == counts[1] < 10  # the answers differ by 1,200 tokens
