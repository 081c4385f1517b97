"""A policy whose step does not come back: who it holds up, and who not."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from server.robot.arrays import pack, unpack
from tests.clients.conftest import Serving, serving
from tests.clients.held_policy import HORIZON, SIZE
from tests.clients.test_openpi import SEEN, real

HELD = "tests.clients.held_policy"
PLACEMENT = f"""
ranks:
  held: {{device: cpu, threads: 1}}
  other: {{device: cpu, threads: 1}}
families:
  {HELD}: {{default: held}}
  pi05: {{default: other}}
"""
OBSERVATION: dict[str, Any] = {
    "image": np.zeros((8, 8, 3), np.uint8),
    "state": np.zeros(2, np.float32),
    "prompt": "wait",
}


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("held") / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture(scope="module")
def robots(gate: Path) -> Iterator[Serving]:
    placement = gate.parent / "placement.yaml"
    placement.write_text(PLACEMENT)
    given = (f"{HELD}.gate={gate}", "pi05.tiny=true")
    sets = [word for pair in given for word in ("--set", pair)]
    yield from serving(HELD, "pi05", *sets, "--placement", str(placement))


async def binary(socket: aiohttp.ClientWebSocketResponse) -> Any:
    message = await socket.receive()
    assert message.type is aiohttp.WSMsgType.BINARY, message
    return unpack(message.data)


async def pinged(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Ping, and read until the pong is there. aiohttp keeps pongs to itself unless it is told not to."""
    await socket.ping(b"still there?")
    message = await socket.receive()
    assert (message.type, message.data) == (aiohttp.WSMsgType.PONG, b"still there?")


async def test_a_policy_that_does_not_come_back_blocks_nobody(robots: Serving, gate: Path) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{robots.url}/?model={HELD}", autoping=False) as waiting,
        http.ws_connect(f"{robots.url}/?model=pi05", max_msg_size=0) as acting,
    ):
        assert (await binary(waiting))["horizon"] == HORIZON
        await binary(acting)
        await waiting.send_bytes(pack(OBSERVATION))
        for _ in range(2):
            await pinged(waiting)
            await acting.send_bytes(pack(real(SEEN)))
            assert (await binary(acting))["actions"].shape == (10, 32)
            status, _ = await asyncio.to_thread(robots.get, "/healthz")
            assert status == 200
        async with http.ws_connect(f"{robots.url}/?model={HELD}") as late:  # of the same policy: let in, and told
            assert (await binary(late))["horizon"] == HORIZON
        async with http.ws_connect(f"{robots.url}/v1/robot/session?model={HELD}") as live:
            assert json.loads((await live.receive()).data)["type"] == "session.created"
        await pinged(waiting)
        await asyncio.to_thread(gate.write_bytes, b"")
        assert (await binary(waiting))["actions"].shape == (HORIZON, SIZE)
