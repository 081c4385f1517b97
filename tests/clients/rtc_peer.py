"""What every WebRTC client of the tests has: a peer connection, a data channel, and the events that came over it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from aiortc import RTCConfiguration, RTCPeerConnection

PATIENCE = 60
"""Seconds after which something is taken for never to come."""


class RtcPeer:
    """`events` in order of arrival; `location` of the call at the server."""

    def __init__(self, channel: str) -> None:
        self.peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.channel = self.peer.createDataChannel(channel)
        self.events: list[dict[str, Any]] = []
        self.location = ""
        self._arrived = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self.channel.add_listener("message", lambda message: self._task(self._note(message)))

    def send(self, kind: str, **fields: Any) -> None:
        self.channel.send(json.dumps({"type": kind, **fields}))

    async def event(self, kind: str, count: int = 1) -> dict[str, Any]:
        """The `count`-th event of a type, when it has come."""

        def found() -> list[dict[str, Any]]:
            return [event for event in self.events if event["type"] == kind]

        await self._until(lambda: len(found()) >= count)
        return found()[count - 1]

    async def close(self) -> None:
        await self.peer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _until(self, come: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE), self._arrived:
            await self._arrived.wait_for(come)

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _note(self, message: str) -> None:
        async with self._arrived:
            self.events.append(json.loads(message))
            self._arrived.notify_all()
