"""The live session over one WebSocket: a reader that never waits, and a writer."""

from __future__ import annotations

import asyncio

from aiohttp import WSMsgType, web

from mstar.errors import Rejected
from server.metrics import Metrics
from server.outbound import Close
from server.robot.events import decode
from server.robot.frames import read_frame
from server.robot.live import TAKEN_OVER, Live, Over, Robot


class LiveSocket:
    """One connection. `run` returns when it is over → whether the session is, too."""

    def __init__(self, socket: web.WebSocketResponse, robot: Robot, metrics: Metrics) -> None:
        self._socket = socket
        self._group = asyncio.TaskGroup()
        self._live = robot.live = Live(robot, self._group, metrics)
        self._live.pictures = True

    def refuse(self, why: Rejected) -> None:
        """Tell the robot of something that is wrong."""
        self._live.refuse(why)

    def end(self, code: int, reason: str) -> None:
        """Close the connection once everything has been said."""
        self._live.end(code, reason)

    async def run(self) -> bool:
        over = False
        try:
            async with self._group:
                writing = self._group.create_task(self._write())
                self._live.start()
                reading = self._group.create_task(self._read())
                await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
                close = writing.result() if writing.done() else None
                if close is None:
                    await asyncio.wait({reading})  # who could not write knows less about the end than who reads
                    over = self._socket.close_code == 1000
                else:
                    over = close.code != TAKEN_OVER
                    await self._say_goodbye(reading, close)
                raise Over
        except* (Over, ConnectionError):
            pass
        finally:
            self._live.stop()
        return over

    async def _say_goodbye(self, reading: asyncio.Task[None], close: Close) -> None:
        """Close, once nobody reads: the library waits for the client only then."""
        reading.cancel()
        await asyncio.wait({reading})
        await self._socket.close(code=close.code, message=close.reason.encode())

    async def _read(self) -> None:
        async for message in self._socket:
            try:
                match message.type:
                    case WSMsgType.TEXT:
                        self._live.client(decode(message.data))
                    case WSMsgType.BINARY:
                        self._live.frame(read_frame(message.data))
                    case _:
                        return
            except Rejected as why:
                self._live.refuse(why)

    async def _write(self) -> Close | None:
        """Write frames until the last one, which says how to close; None when the client is gone before."""
        while True:
            frame = await self._live.outbound.pop()
            if isinstance(frame, Close):
                return frame
            try:
                await self._socket.send_frame(frame.body, WSMsgType.BINARY if frame.binary else WSMsgType.TEXT)
            except ConnectionError:
                return None
            self._live.outbound.written(frame)
