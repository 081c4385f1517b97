"""One text said to a client that takes its sound in order: what the HTTP routes share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from models.registry import Speech as Offer
from mstar.client import Session as Runtime
from server.speech.context import Ended, Event, Sound, Word, Words
from server.speech.driver import Speaker
from server.speech.sound import Outlet, Shape

HIGH = 256 * 1024
"""Bytes that may wait for the client before no more is made."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """Bytes of sound, with the words told since the last."""

    sound: bytes
    words: tuple[Word, ...]
    samples: int
    """Of the family's rate, up to the end of these bytes."""


class Saying:
    """Iterates over bytes of sound; raises Rejected where the family fails. Use `say` once."""

    def __init__(
        self, runtime: Runtime, offer: Offer, settings: Mapping[str, Any], shape: Shape, group: asyncio.TaskGroup
    ) -> None:
        self.shape = shape
        self.reason = "stop"
        self._outlet = Outlet(offer.rate, shape)
        self._speaker = Speaker(runtime, offer, settings, group, self._told, self._wanted)
        self._pieces: deque[Spoken] = deque()
        self._words: list[Word] = []
        self._waiting = 0
        self._heard = False
        self._end: Ended | None = None
        self._filled = asyncio.Event()
        self._taken = asyncio.Event()

    @property
    def tokens(self) -> tuple[int, int]:
        """Read and written by the voice's language model."""
        return self._speaker.context.tokens

    def say(self, text: str) -> None:
        """Raises Rejected."""
        self._speaker.append(text)
        self._speaker.end()

    def cancel(self) -> None:
        self._speaker.cancel()

    async def spoken(self) -> AsyncIterator[Spoken]:
        """Sound with its words; none at all if nothing in the text can be said."""
        while self._end is None or self._pieces:
            while self._pieces:
                piece = self._pieces.popleft()
                self._waiting -= len(piece.sound)
                self._taken.set()
                yield piece
            if self._end is None:
                self._filled.clear()
                await self._filled.wait()
        if self._end.error is not None:
            raise self._end.error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self.spoken():
            if piece.sound:
                yield piece.sound

    async def _wanted(self) -> None:
        while self._waiting > HIGH:
            self._taken.clear()
            await self._taken.wait()

    def _told(self, event: Event) -> None:
        match event:
            case Sound(pcm=pcm):
                self._heard = True
                self._push(self._outlet.feed(pcm))
            case Words(words):
                self._words += words
            case Ended(reason=reason):
                self.reason = reason
                if event.status == "done" and self._heard:
                    self._push(self._outlet.finish())
                self._end = event
        self._filled.set()

    def _push(self, sound: bytes) -> None:
        if sound or self._words:
            self._pieces.append(Spoken(sound, tuple(self._words), self._speaker.context.samples))
            self._words.clear()
            self._waiting += len(sound)
