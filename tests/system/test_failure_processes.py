"""Workers of the toy family as real processes: killed, stopped, wedged. What they did ends, everything else lives."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from mstar.bus.patience import Patience
from mstar.client import Emission, Request, RequestEnded, Session, Slice
from mstar.client.launch import Launched, launch
from mstar.placement import placement_of
from tests.system.test_toy_processes import FAMILIES, all_of, ask, census
from tests.system.toy import end_of, items, sound_of, text_of, tones, values

PATIENCE = Patience(silent=5.0, step=5.0, waiting=300.0)
PLACEMENT = placement_of(
    {
        "ranks": {"ear": {}, "main": {}, "speech": {}},
        "families": {
            "toy": {
                "default": "main",
                "nodes": {"vad": "ear", "turn": "ear", "tone": "speech", "vocoder": "speech"},
            }
        },
        "oversubscribe": True,
    }
)
"""Answers go over two workers: what one has made of them is let go of when the other is lost."""
EAR, MAIN, SPEECH = "worker.ear", "worker.main", "worker.speech"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def launched() -> AsyncIterator[Launched]:
    running = launch(FAMILIES, PLACEMENT, patience=PATIENCE, spare=True)
    await running.ready()
    yield running
    await running.stop(300.0)
    assert {name: process.returncode for name, process in running.processes.items()} == dict.fromkeys(
        ("conductor", EAR, MAIN, SPEECH), 0
    )
    assert not running.directory.exists()


def start(session: Session, text: str) -> Request:
    request = session.start("answer_speech", ask(text))
    request.credit("audio", 10**9)
    return request


async def until_sound(request: Request) -> list[Emission | RequestEnded]:
    """The events up to the first sound."""
    events = []
    async for event in request:
        events.append(event)
        if isinstance(event, Emission) and event.output == "audio":
            break
    return events


async def counters(launched: Launched, process: str = "conductor") -> dict[str, Any]:
    told = await launched.client.ask("counters", of=process)
    assert isinstance(told, dict)
    return dict(told)


async def test_a_worker_that_is_killed(launched: Launched) -> None:
    baseline = await census(launched)
    session = await launched.client.open("toy")
    whole = sound_of(await all_of(start(session, "long")))
    listen = session.start("listen", positions={"mic": 0})
    rows = items(tones("hello name"))
    session.feed("mic", 0, rows, rows=True)
    request = start(session, "long")
    events = await until_sound(request)
    spare = launched.spare
    assert spare is not None
    launched.processes[MAIN].kill()
    events += await all_of(request)
    end = end_of(events)
    assert (end.status, end.code) == ("failed", "worker_lost")
    assert end.cause == f"{MAIN} ended with status -9 (SIGKILL); it is being replaced"
    assert 0 < len(sound_of(events)) < len(whole)
    assert np.array_equal(sound_of(events), whole[: len(sound_of(events))])
    # What is asked now waits for the new process, which is given what was said before the loss.
    request = session.start("answer_audio_speech", {"history": [], "tools": [], "audio": Slice("mic", 0, len(rows))})
    request.credit("audio", 10**9)
    events = await all_of(request)
    assert text_of(events) == "you said hello name"
    assert end_of(events).status == "done"
    assert not any(isinstance(event, RequestEnded) for event in listen.drain())  # the ear was never disturbed
    assert launched.processes[MAIN] is spare
    assert launched.spare is not spare
    assert (await counters(launched))["restarts"] == {EAR: 0, MAIN: 1, SPEECH: 0}
    await session.close()
    async with asyncio.timeout(60):
        while await census(launched) != baseline:
            pass


async def test_workers_that_stand_still_are_noticed_and_replaced(launched: Launched) -> None:
    """One is stopped, the other computes a step that never ends; both at once."""
    session = await launched.client.open("toy")
    stopped, wedged = launched.processes[EAR], launched.processes[MAIN]
    listen = session.start("listen", positions={"mic": 0})
    rows = items(tones("hello name"))
    session.feed("mic", 0, rows[:10], rows=True)
    heard = [event.value async for event in _some(listen, 10)]
    os.kill(stopped.pid, signal.SIGSTOP)
    stuck = start(session, "wedge")
    session.feed("mic", 10, rows[10:], rows=True)
    ends = [end_of(await all_of(request)) for request in (stuck, listen)]
    assert [end.code for end in ends] == ["worker_lost", "worker_lost"]
    assert "has computed one step for" in ends[0].cause
    assert "has said nothing for" in ends[1].cause
    listen = session.start("listen", positions={"mic": 10})
    heard += [event.value async for event in _some(listen, len(rows) - 10)]
    assert len(heard) == len(rows)
    assert text_of(await all_of(start(session, "hello"))) == "you said hello"
    assert launched.spare is not None  # there is another one when both are back
    assert stopped.poll() == wedged.poll() == -signal.SIGKILL
    await session.close()


async def _some(request: Request, number: int) -> AsyncIterator[Emission]:
    """The next emissions of a request that goes on."""
    async for event in request:
        assert isinstance(event, Emission)
        yield event
        number -= 1
        if not number:
            return


async def test_one_that_fails_in_a_batch_fails_alone(launched: Launched) -> None:
    session = await launched.client.open("toy")
    alone = {text: await all_of(start(session, text)) for text in ("count", "weather", "sing")}
    before = await counters(launched, MAIN)
    requests = {text: start(session, text) for text in ("count", "fail", "weather", "sing")}
    together = {text: await all_of(request) for text, request in requests.items()}
    failed = end_of(together.pop("fail"))
    assert (failed.status, failed.node, failed.code) == ("failed", "LM", "node_failed")
    for text, events in together.items():
        assert text_of(events) == text_of(alone[text])
        assert np.array_equal(sound_of(events), sound_of(alone[text]))
        assert values(events, "usage")[-1]["generated"] == values(alone[text], "usage")[-1]["generated"]
    after = await counters(launched, MAIN)
    assert after["firings"] - before["firings"] > after["steps"] - before["steps"]  # they did share batches
    await session.close()
