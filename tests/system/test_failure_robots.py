"""Robots of which a worker is killed in the middle of an answer: they are told, and the next answer comes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from models.pi05 import model
from server.robot.arrays import pack, unpack
from tests.clients.conftest import Serving, serving
from tests.clients.test_openpi import SEEN, real
from tests.clients.test_robot_session import LEFT, PICTURE, Robot, connected, raw

PATIENCE = 120.0
PLACEMENTS = ("one rank", "placement-prefill.yaml")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=PLACEMENTS)
def robots(request: pytest.FixtureRequest) -> Iterator[Serving]:
    file = Path(str(model.__file__)).with_name(request.param)
    placed = ("--placement", str(file)) if file.exists() else ()
    yield from serving("pi05", "--set", "pi05.tiny=true", "--waiting-seconds", "300", *placed)


def workers(server: Serving) -> list[str]:
    return sorted(name for name in server.parties if name.startswith("worker."))


def running(server: Serving) -> float:
    """Requests that the conductor knows of."""
    start = 'mstar_held{name="requests",process="conductor"} '
    [line] = [line for line in server.get("/metrics")[1].splitlines() if line.startswith(start)]
    return float(line.removeprefix(start))


async def ready(server: Serving) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await asyncio.to_thread(server.get, "/readyz"))[0] != 200:
            pass


async def killed_while(server: Serving, worker: str, ask: Callable[[], Awaitable[None]]) -> None:
    """The worker stands still, is asked, and is killed before it could answer."""
    await ready(server)
    process = server.parties[worker]
    os.kill(process, signal.SIGSTOP)
    await ask()
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(running, server):
            pass
    os.kill(process, signal.SIGKILL)


async def seen_now(robot: Robot) -> None:
    """What a chunk is made of; nothing is older than the rows that are to be acted."""
    await robot.send(type="state", t=robot.now, values=[0.0] * 8)
    await robot.frame(LEFT, raw(PICTURE))


async def test_a_live_session_goes_on_with_another_worker(robots: Serving) -> None:
    async with connected(robots, model="pi05") as robot:
        await robot.send(type="session.update", session={"rate": 1, "prompt": "pick up the cup", "cameras": [LEFT]})
        await robot.until("session.updated")
        await seen_now(robot)
        first = await robot.chunk(id="a", settings={"seed": 1})
        for worker in workers(robots):
            lost = f"lost {worker}"
            await seen_now(robot)
            await killed_while(robots, worker, partial(robot.send, type="ask", id=lost, settings={"seed": 1}))
            seen: list[dict[str, Any]] = []
            while not seen or (seen[-1]["type"], seen[-1].get("ask")) != ("ask.ended", lost):
                seen.append(await asyncio.wait_for(robot.next(), PATIENCE))
            assert "worker_lost" in {event.get("code") or event.get("error", {}).get("code") for event in seen}, seen
            await ready(robots)
            await seen_now(robot)
            again = await robot.chunk(id=f"after {worker}", settings={"seed": 1})
            assert again["actions"] == first["actions"]


async def test_openpi_says_what_happened_and_stays(robots: Serving) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{robots.url}/openpi/policy", max_msg_size=0) as socket,
    ):
        await socket.receive()
        wanted = pack({**real(SEEN), "settings": {"seed": 1}})
        await socket.send_bytes(wanted)
        first = unpack((await socket.receive()).data)
        assert isinstance(first, dict)
        for worker in workers(robots):
            await killed_while(robots, worker, partial(socket.send_bytes, wanted))
            assert str((await socket.receive()).data).startswith("worker_lost: ")
            await socket.send_bytes(wanted)
            again = unpack((await socket.receive()).data)
            assert isinstance(again, dict)
            assert np.array_equal(again["actions"], first["actions"])
