"""What a context tells the runtime while it sounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from models.registry import Speech as Offer
from mstar.client import Emission, RequestEnded
from server.speech import driver
from server.speech.context import Ended, Event
from server.speech.driver import LEAD_SECONDS, Speaker

RATE = 8000


class Made:
    """A request whose events are put in by hand; `credits` are what it was granted, and told of what was heard."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Emission | RequestEnded] = asyncio.Queue()
        self.credits: list[tuple[int, int]] = []
        self.told = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Emission | RequestEnded]:
        while True:
            yield (event := await self.events.get())
            if isinstance(event, RequestEnded):
                return

    def credit(self, _: str, upto: int, played: int) -> None:
        self.credits.append((upto, played))
        self.told.set()

    async def until_told(self, count: int) -> None:
        while len(self.credits) < count:
            self.told.clear()
            await self.told.wait()

    def feed(self, *_: Any, **__: Any) -> None: ...

    def commit(self, *_: Any) -> None: ...

    def interrupt(self, _: int) -> None: ...


class Runtime:
    def __init__(self) -> None:
        self.request = Made()

    def start(self, *_: Any) -> Made:
        return self.request


async def test_what_is_heard_is_told_while_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "HEARD_SECONDS", 0.001)
    runtime, events = Runtime(), list[Event]()
    made = runtime.request
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        offer = Offer(RATE, ("one",))
        speaker = Speaker(runtime, offer, {}, group, events.append)  # type: ignore[arg-type]
        now = 0.0
        speaker._clock = lambda: now
        speaker.append("something")
        speaker.end()
        made.events.put_nowait(Emission("r", "audio", 0, {"pcm": np.ones(RATE, np.float32), "start": 0}))
        await made.until_told(2)
        granted = RATE + LEAD_SECONDS * RATE
        assert made.credits[-1] == (granted, 0)
        now = 0.5
        told = len(made.credits)
        await made.until_told(told + 2)
        assert made.credits[-1] == (granted, RATE // 2)
        now = 7.0  # no more is heard than was made
        told = len(made.credits)
        await made.until_told(told + 2)
        assert made.credits[-1] == (granted, RATE)
        made.events.put_nowait(RequestEnded("r", "done"))
    assert isinstance(events[-1], Ended)
    told = len(made.credits)
    speaker._tell_heard()  # the last time
    assert len(made.credits) == told
    assert speaker._telling is None
