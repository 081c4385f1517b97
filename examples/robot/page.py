"""The page's side of the agent: the pages as files, and a WebSocket that tells what the robot does."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web

from models.worlds.arena import Picture
from server.pages import pages

BACKLOG = 256
"""Messages that a page may be behind; then it is let go."""
KEPT = ("world", "running", "goal", "look", "plan")
"""What a page that comes later is told first: the last one of each."""


class Onlookers:
    """Pages that look on (see `examples.robot.agent.Audience`)."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[str]] = set()
        self._last: dict[str, str] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._queues)

    def tell(self, kind: str, *, picture: Picture | None = None, **fields: Any) -> None:
        """To all of them; who does not read is let go."""
        message = json.dumps({"type": kind, **fields, **(packed(picture) if picture is not None else {})})
        if kind in KEPT:
            self._last[kind] = message
        for queue in list(self._queues):
            if queue.full():
                self._queues.discard(queue)
            else:
                queue.put_nowait(message)

    async def watch(self, request: web.Request, do: Callable[[str], None]) -> web.WebSocketResponse:
        """One page, until it goes; `do` is called with what its user wants: start, stop, goal."""
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="only this robot's own page may watch it")
        socket = web.WebSocketResponse(heartbeat=20.0)
        await socket.prepare(request)
        queue: asyncio.Queue[str] = asyncio.Queue(BACKLOG)
        for kind in KEPT:
            if kind in self._last:
                queue.put_nowait(self._last[kind])
        self._queues.add(queue)
        writing = asyncio.create_task(self._write(socket, queue))
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    do(message.data)
        finally:
            self._queues.discard(queue)
            writing.cancel()
        return socket

    async def _write(self, socket: web.WebSocketResponse, queue: asyncio.Queue[str]) -> None:
        with contextlib.suppress(ConnectionError):  # who reads is told that it has gone
            while queue in self._queues:
                await socket.send_str(await queue.get())
            await socket.close()


def packed(picture: Picture) -> Mapping[str, Any]:
    """A picture as JSON: rows of red, green and blue bytes in base64."""
    height, width, _ = picture.shape
    return {"width": width, "height": height, "rgb": base64.b64encode(picture.tobytes()).decode()}


def application(onlookers: Onlookers, do: Callable[[str], None]) -> web.Application:
    """`/` is the robot's page, `/watch` its WebSocket."""
    page = pages(None)

    async def first(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("robot.html")

    async def watch(request: web.Request) -> web.StreamResponse:
        return await onlookers.watch(request, do)

    app = web.Application()
    app.router.add_get("/", first)
    app.router.add_get("/watch", watch)
    app.router.add_get("/{path:.*}", page)
    return app
