"""A client of the live session (`/v1/robot/session`, see docs/robot.md): one camera, plans one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np

from models.worlds.arena import Floats, Picture

HEADER = struct.Struct("<BBBBIdHH")
"""Version, kind, encoding, length of the name, number, capture time, width, height."""
CAMERA, GOAL, IMAGINED = 0, 1, 2
RAW = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """`actions` [rows, size] from now on; `energy` of the best candidates; how long it took, how old what it saw is."""

    actions: Floats
    energy: float
    iterations: int
    took_ms: float
    age_ms: float
    number: int  # of the chunk


@dataclass(frozen=True, slots=True)
class Imagined:
    """A picture of what a plan leads to, after some of its actions; `chunk` is the plan's number."""

    chunk: int
    actions: int
    picture: Picture


class Refused(Exception):
    """The server's words."""


class Lost(Exception):
    """The connection has ended."""


class LiveSession:
    """`offer`: what the served model says of itself. `imagined` is called for every picture, in its order."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, imagined: Callable[[Imagined], None]) -> None:
        self.offer: Mapping[str, Any] = {}
        self._socket = socket
        self._imagined = imagined
        self._events: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._frames = 0
        self._asks = 0

    async def prepare(self, *, stale_ms: float, rate: float) -> None:
        """Wait for the session, set it up. `stale_ms`: an older frame is not planned from."""
        self.offer = (await self._until("session.created"))["session"]["offer"]
        shown = {"show": True} if self.offer.get("shows") else {}
        await self._send(type="session.update", session={"stale_ms": stale_ms, "rate": rate, **shown})
        await self._until("session.updated")

    async def goal(self, name: str, picture: Picture) -> None:
        """Plans lead there from now on."""
        await self._picture(GOAL, name, 0, picture)

    async def plan(self, picture: Picture, state: Floats, settings: Mapping[str, Any]) -> Plan:
        """From a robot that stands. Raises Refused, Lost."""
        self._frames += 1
        self._asks += 1
        name = str(self._asks)
        await self._send(type="state", t=time.monotonic(), values=[float(each) for each in state])
        await self._picture(CAMERA, self.offer["cameras"][0], self._frames, picture)
        await self._send(type="ask", id=name, standing=True, settings=dict(settings))
        chunk = await self._until("chunk")
        plan = chunk["plan"]
        rows = np.asarray(chunk["actions"][chunk["first"] :], np.float32)
        return Plan(rows, plan["energy"], plan["iteration"], chunk["infer_ms"], chunk["age_ms"], chunk["number"])

    async def read(self) -> None:
        """Answers pings, and keeps what comes; until the connection ends."""
        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                self._take(message.data)
                continue
            event = json.loads(message.data)
            if event["type"] == "clock.ping":
                await self._send(type="clock.pong", id=event["id"], t=time.monotonic())
            else:
                self._events.put_nowait(event)
        self._events.put_nowait(None)

    def _take(self, data: bytes) -> None:
        _, kind, encoding, length, number, _, width, height = HEADER.unpack_from(data)
        if kind == IMAGINED and encoding == RAW:
            start = HEADER.size + length
            pixels = np.frombuffer(data, np.uint8, offset=start).reshape(height, width, 3)
            self._imagined(Imagined(int(data[HEADER.size : start]), number, pixels))

    async def _until(self, kind: str) -> Mapping[str, Any]:
        while (event := await self._events.get()) is not None:
            if event["type"] == "error":
                raise Refused(event["message"])
            if event["type"] == kind:
                return event
        raise Lost

    async def _send(self, **event: Any) -> None:
        with contextlib.suppress(ConnectionError):  # whoever waits for an answer is told
            await self._socket.send_str(json.dumps(event))

    async def _picture(self, kind: int, name: str, number: int, picture: Picture) -> None:
        height, width, _ = picture.shape
        called = name.encode()
        head = HEADER.pack(1, kind, RAW, len(called), number, time.monotonic(), width, height)
        with contextlib.suppress(ConnectionError):
            await self._socket.send_bytes(head + called + picture.tobytes())


@asynccontextmanager
async def live_session(
    url: str, *, imagined: Callable[[Imagined], None] = lambda _: None, stale_ms: float = 60_000.0, rate: float = 4.0
) -> AsyncIterator[LiveSession]:
    """A session with the server at `url` (http…); it is over when the block ends."""
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{url}/v1/robot/session", max_msg_size=0) as socket,
        asyncio.TaskGroup() as group,
    ):
        session = LiveSession(socket, imagined)
        reading = group.create_task(session.read())
        try:
            await session.prepare(stale_ms=stale_ms, rate=rate)
            yield session
            await socket.close()
        finally:
            reading.cancel()
