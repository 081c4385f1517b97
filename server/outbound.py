"""Frames on their way to one client: bounded, in order; sound of an interrupted response is taken out again."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

HIGH = 64 * 1024
"""Bytes waiting above which a client counts as not reading …"""
LOW = 16 * 1024
"""… until no more than these wait."""
MOST = 8 * 1024 * 1024
"""Bytes waiting above which the client is given up."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`sound_of` names the response whose sound this is, "" for everything that must not be dropped."""

    body: bytes
    sound_of: str = ""
    binary: bool = False  # else text

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.body)


@dataclass(frozen=True, slots=True)
class Close:
    """The last thing a writer does."""

    code: int
    reason: str


class Outbound:
    """Queue between whoever has something to say and the one task that writes it."""

    def __init__(self) -> None:
        self.waiting = 0
        """Bytes not yet handed to the socket."""
        self.congested = False
        self._frames: deque[Frame | Close] = deque()
        self._filled = asyncio.Event()
        self._eased = asyncio.Event()
        self._eased.set()
        self._turned = asyncio.Event()

    def push(self, frame: Frame | Close) -> None:
        self._frames.append(frame)
        if isinstance(frame, Frame):
            self.waiting += frame.size
            self._judge()
        self._filled.set()

    def drop(self, response_id: str) -> list[Frame]:
        """Sound of this response that has not left is not wanted any more → what it was."""
        kept: deque[Frame | Close] = deque()
        dropped = []
        for frame in self._frames:
            if isinstance(frame, Frame) and frame.sound_of == response_id:
                self.waiting -= frame.size
                dropped.append(frame)
            else:
                kept.append(frame)
        self._frames = kept
        self._judge()
        return dropped

    async def pop(self) -> Frame | Close:
        """The next frame. It counts as waiting until `written`."""
        while not self._frames:
            self._filled.clear()
            await self._filled.wait()
        return self._frames.popleft()

    def written(self, frame: Frame) -> None:
        self.waiting = max(0, self.waiting - frame.size)
        self._judge()

    async def eased(self) -> None:
        """Returns when the client reads (again)."""
        await self._eased.wait()

    async def turned(self) -> None:
        """Returns when `congested` has changed, or too much waits."""
        await self._turned.wait()
        self._turned.clear()

    @property
    def overflowing(self) -> bool:
        return self.waiting > MOST

    def _judge(self) -> None:
        if self.waiting > HIGH and not self.congested:
            self.congested = True
            self._eased.clear()
            self._turned.set()
        elif self.waiting <= LOW and self.congested:
            self.congested = False
            self._eased.set()
            self._turned.set()
        if self.overflowing:
            self._turned.set()
