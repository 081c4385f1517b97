"""A plain WebSocket client, for what a well-behaved SDK would not do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.clients.conftest import Serving


class Raw:
    """One connection; `next` gives decoded events."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, event: Mapping[str, Any] | str) -> None:
        await self.socket.send_str(event if isinstance(event, str) else json.dumps(event))

    async def next(self) -> dict[str, Any]:
        message = await asyncio.wait_for(self.socket.receive(), 20)
        assert message.type is aiohttp.WSMsgType.TEXT, message
        return dict(json.loads(message.data))

    async def until(self, kind: str) -> dict[str, Any]:
        while (event := await self.next())["type"] != kind:
            pass
        return event

    async def closed(self) -> int:
        """Read to the end → close code."""
        while (await asyncio.wait_for(self.socket.receive(), 30)).type is aiohttp.WSMsgType.TEXT:
            pass
        assert self.socket.close_code is not None
        return self.socket.close_code


@asynccontextmanager
async def connected(server: Serving, path: str = "/v1/realtime", **given: Any) -> AsyncIterator[Raw]:
    """A connection; keyword arguments go to aiohttp. Raises WSServerHandshakeError where the server refuses."""
    async with aiohttp.ClientSession() as session, session.ws_connect(server.url + path, max_msg_size=0, **given) as ws:
        yield Raw(ws)
