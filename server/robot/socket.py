"""The live session over one WebSocket: a reader that never waits, and a writer."""

from __future__ import annotations

import asyncio

from aiohttp import WSMsgType, web

from mstar.errors import Rejected
from server.metrics import Metrics
from server.outbound import Close
from server.robot.ears import Ears, attend
from server.robot.events import decode
from server.robot.frames import Frame, Sound, read_binary
from server.robot.live import TAKEN_OVER, Live, Over, Robot
from server.webrtc.hearing import Hearing


class LiveSocket:
    """One connection. `run` returns when it is over → whether the session is, too."""

    def __init__(self, socket: web.WebSocketResponse, robot: Robot, metrics: Metrics, ears: Ears | None = None) -> None:
        self._socket = socket
        self._ears = ears
        self._hearing: Hearing | None = None
        self._heard = 0  # samples of the microphone
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
                self._group.create_task(self._live.dropped())
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
                        self._take(read_binary(message.data))
                    case _:
                        return
            except Rejected as why:
                self._live.refuse(why)

    def _take(self, given: Frame | Sound) -> None:
        match given:
            case Frame():
                self._live.frame(given)
            case Sound(rate=rate, pcm=pcm):
                if self._ears is None:
                    raise Rejected("No family is served here that hears.", code="ears_unavailable")
                if self._hearing is None:
                    self._hearing = Hearing(self._ears.rate)
                    self._group.create_task(attend(self._ears, self._live))
                self._ears.hear(self._hearing.feed(self._heard, rate, pcm))
                self._heard += len(pcm)

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
