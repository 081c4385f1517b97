"""A peer's data channel: what comes is kept in a bounded inbox, what goes heeds the channel's own buffer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiortc import RTCDataChannel

from server.outbound import Close, Outbound

HIGH = 64 * 1024
LOW = 16 * 1024
"""Bytes in the data channel above which the next event waits, until no more than the lower number are left."""
INBOX = 256
"""Messages that may wait to be taken."""


class Channel:
    """`open` it with the peer's channel once that has come; `closed` and `flooded` are called from the event loop."""

    def __init__(self, outbound: Outbound, closed: Callable[[], None], flooded: Callable[[], None]) -> None:
        self._outbound = outbound
        self._closed = closed
        self._flooded = flooded
        self._inbox: asyncio.Queue[str | bytes] = asyncio.Queue(INBOX)
        self._channel: RTCDataChannel | None = None
        self._open = asyncio.Event()
        self._low = asyncio.Event()

    @property
    def opened(self) -> bool:
        """Whether it has come."""
        return self._open.is_set()

    def open(self, channel: RTCDataChannel) -> None:
        """The peer's data channel has come; it is open already."""
        self._channel = channel
        channel.bufferedAmountLowThreshold = LOW
        channel.add_listener("bufferedamountlow", self._low.set)
        channel.add_listener("message", self._take)
        channel.add_listener("close", self._closed)
        self._open.set()

    async def missing(self, seconds: float) -> None:
        """Returns if it has not come within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._open.wait()
        except TimeoutError:
            return
        await asyncio.Event().wait()

    async def read(self) -> str | bytes:
        """The next message."""
        return await self._inbox.get()

    async def write(self) -> Close | None:
        """Write what is outbound up to the close, which is returned; None when the channel is closed before."""
        await self._open.wait()
        channel = self._channel
        assert channel is not None
        while True:
            frame = await self._outbound.pop()
            if channel.readyState != "open":
                return None
            while channel.bufferedAmount > (0 if isinstance(frame, Close) else HIGH):
                if isinstance(frame, Close):
                    channel.bufferedAmountLowThreshold = 0
                self._low.clear()
                await self._low.wait()
            if isinstance(frame, Close):
                return frame
            channel.send(frame.body.decode())
            self._outbound.written(frame)

    def _take(self, message: str | bytes) -> None:
        try:
            self._inbox.put_nowait(message)
        except asyncio.QueueFull:
            self._flooded()
