"""Who looks on at a robot: told what happens, what happened before, and let go when it does not read."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from examples.robot.page import BACKLOG, Onlookers, application

PICTURE = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)


class Shown:
    """A page's server, with what its users wanted."""

    def __init__(self) -> None:
        self.onlookers = Onlookers()
        self.wanted: asyncio.Queue[str] = asyncio.Queue()
        self.url = ""


@pytest.fixture
async def shown() -> AsyncIterator[Shown]:
    found = Shown()
    runner = web.AppRunner(application(found.onlookers, found.wanted.put_nowait))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


async def told(socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
    return dict(json.loads((await asyncio.wait_for(socket.receive(), 30)).data))


async def test_who_comes_late_is_told_how_things_are(shown: Shown) -> None:
    shown.onlookers.tell("running", on=False)
    shown.onlookers.tell("look", picture=PICTURE, step=1)
    shown.onlookers.tell("running", on=True)
    shown.onlookers.tell("end", reached=True)
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{shown.url}/watch") as socket:
        assert await told(socket) == {"type": "running", "on": True}
        look = await told(socket)
        assert (look["width"], look["height"], look["step"]) == (2, 2, 1)
        assert base64.b64decode(look["rgb"]) == bytes(range(12))
        shown.onlookers.tell("end", reached=False)
        assert await told(socket) == {"type": "end", "reached": False}
        await socket.send_str("start")
        assert await asyncio.wait_for(shown.wanted.get(), 30) == "start"


async def test_who_does_not_read_is_let_go(shown: Shown) -> None:
    shown.onlookers.tell("running", on=True)
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{shown.url}/watch") as socket:
        await told(socket)
        for number in range(BACKLOG + 1):  # nothing is sent before this task waits
            shown.onlookers.tell("end", number=number)
        assert not shown.onlookers.count
        while (await asyncio.wait_for(socket.receive(), 30)).type is not aiohttp.WSMsgType.CLOSED:
            pass


async def test_only_the_robots_own_page_may_watch(shown: Shown) -> None:
    async with aiohttp.ClientSession() as http:
        own = {"Origin": shown.url}
        async with http.ws_connect(f"{shown.url}/watch", headers=own):
            pass
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(f"{shown.url}/watch", headers={"Origin": "https://elsewhere.example"})
        assert refused.value.status == 403
        async with http.get(shown.url) as page:
            assert page.url.path == "/robot.html"
            assert "<title>M* live · robot</title>" in await page.text()
