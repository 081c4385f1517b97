"""How old frames are: cameras at 30 pictures a second over the live session of a running server.

A policy that hardly computes, asked again and again, with 1, 2 and 4 cameras: what is left is the feed. Then the
planner of the room, given a new ask every 100 ms whether or not the last one is answered: what is not used is dropped,
not queued.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
import numpy as np

from models.worlds.recipe import ROOM
from server.robot.frames import Encoding, Frame, Kind, Shot, pack_frame
from tests.bench.report import Metric, Row, Sample
from tests.clients.conftest import Serving, serving
from tests.painter.watcher import CAMERAS

POLICY = "tests.painter.watcher"
RATE, ASKS = 30.0, 10.0
"""Pictures of a camera, and new asks of the planner, a second."""
PICTURE = np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)
SECONDS, QUICK_SECONDS = 20.0, 3.0


def run(*, quick: bool) -> Row:
    """Every feed for 20 seconds, 3 if quick."""
    seconds = QUICK_SECONDS if quick else SECONDS
    with contextmanager(serving)(POLICY, "vjepa2", "--set", "vjepa2.world=room") as server:
        feeds = {count: asyncio.run(_watched(server, count, seconds)) for count in (1, 2, 4)}
        before = _counts(server)
        asyncio.run(_planned(server, seconds))
        after = _counts(server)
    metrics: list[Metric] = []
    samples: list[Sample] = []
    for count, chunks in feeds.items():
        reply = [chunk["age_ms"] for chunk in chunks]
        inference = [chunk["age_ms"] - chunk["infer_ms"] for chunk in chunks]
        metrics += [
            Metric(f"age_at_inference_{count}", "ms", tuple(inference)),
            Metric(f"age_at_reply_{count}", "ms", tuple(reply)),
        ]
        samples += [{"cameras": count, "reply": a, "inference": b} for a, b in zip(reply, inference, strict=True)]
    gone = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in after}
    for name in ("chunks done", "chunks superseded", "chunks late", "frames used", "frames dropped"):
        metrics.append(Metric(f"planner_{name.replace(' ', '_')}", "", (gone.get(name, 0.0),)))
    return Row("feed", tuple(metrics), tuple(samples), notes=(f"raw pictures of 640 × 480 at {RATE:.0f} a second",))


def _counts(server: Serving) -> dict[str, float]:
    """Frames by fate and chunks by outcome so far."""
    text = server.get("/metrics")[1]
    found = re.findall(r'^mstar_(frames|chunks)_total\{(?:.*,)?(?:fate|outcome)="(\w+)".*\} (\S+)$', text, re.MULTILINE)
    return {f"{what} {how}": float(value) for what, how, value in found}


class _Feed:
    """One connection: sends, answers pings, keeps chunks."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._seq = 0
        self.chunks: list[Mapping[str, Any]] = []

    async def read(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if event["type"] == "clock.ping":
                await self.send(type="clock.pong", id=event["id"], t=time.monotonic())
            elif event["type"] == "chunk":
                self.chunks.append(event)
            elif event["type"] == "error":
                raise RuntimeError(event["message"])

    async def send(self, **event: Any) -> None:
        await self._socket.send_str(json.dumps(event))

    async def show(self, name: str, picture: np.ndarray, kind: Kind = Kind.CAMERA) -> None:
        self._seq += 1
        height, width, _ = picture.shape
        shot = Shot(Encoding.RGB, width, height, picture.tobytes())
        await self._socket.send_bytes(pack_frame(Frame(kind, name, self._seq, time.monotonic(), shot)))

    async def every(self, seconds: float, rate: float, act: Any) -> None:
        """By absolute deadlines."""
        began = time.monotonic()
        for number in range(round(seconds * rate)):
            await asyncio.sleep(began + number / rate - time.monotonic())
            await act()


async def _watched(server: Serving, cameras: int, seconds: float) -> list[Mapping[str, Any]]:
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{server.url}/v1/robot/session?model={POLICY}", max_msg_size=0) as socket,
    ):
        feed, names = _Feed(socket), CAMERAS[:cameras]
        reading = asyncio.create_task(feed.read())
        await feed.send(type="session.update", session={"rate": 30, "cameras": list(names)})
        await feed.send(type="state", t=time.monotonic(), values=[0.0, 0.0])

        async def shown() -> None:
            for name in names:
                await feed.show(name, PICTURE)

        await shown()
        await feed.send(type="ask", repeat=True)
        await feed.every(seconds, RATE, shown)
        reading.cancel()
        await asyncio.wait({reading})
    return feed.chunks[1:]  # before the first one something had to wake up


async def _planned(server: Serving, seconds: float) -> None:
    arena = ROOM.arena()
    arena.place(np.random.default_rng(1))
    goal = arena.picture()
    arena.place(np.random.default_rng(2))
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{server.url}/v1/robot/session?model=vjepa2", max_msg_size=0) as socket,
        asyncio.TaskGroup() as group,
    ):
        feed = _Feed(socket)
        reading = group.create_task(feed.read())
        await feed.show("there", goal, Kind.GOAL)
        await feed.send(type="state", t=time.monotonic(), values=[float(each) for each in arena.state()])

        async def shown() -> None:
            await feed.show("camera", arena.picture())

        async def asked() -> None:
            await feed.send(type="ask", standing=True)

        asking = group.create_task(feed.every(seconds, ASKS, asked))
        await feed.every(seconds, RATE, shown)
        await asking
        reading.cancel()
