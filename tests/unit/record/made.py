"""A recording made without a server: a core that is spoken to, on a runtime in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from models.toy.model import CONVERSATION, FAMILY
from mstar.clock import ManualClock
from mstar.local import LocalSystem
from mstar.placement import Placement
from server.events.decode import decode
from server.record.core import TapedCore
from server.record.entries import Began, Entry, Opened, Weights, first_line, packed, read
from server.record.following import Outcome
from server.record.repeat import Repeat
from server.record.replay import Replay
from server.session.options import Options

BEGAN = Began("rec-1", "websocket", "toy", {}, {"seed": 3}, "toy", {}, None, "a-seed", 100.0, 1_900_000_000, 0)


def taped() -> tuple[TapedCore, list[Entry]]:
    """A core and what it keeps."""
    kept: list[Entry] = []
    core = TapedCore(CONVERSATION, Options(), BEGAN, kept.append)
    core.open()
    return core, kept


def say(core: TapedCore, now: float, **event: Any) -> None:
    core.client(decode(msgspec.json.encode(event)), now)


def written(path: Path, entries: Iterable[Entry]) -> Path:
    """A file of these entries."""
    first, *others = entries
    path.write_bytes(first_line() + packed(first) + packed(Weights({})) + b"".join(map(packed, others)))
    return path


@asynccontextmanager
async def local(placement: Placement | None = None) -> AsyncIterator[tuple[LocalSystem, Callable[[float], None]]]:
    """The toy family in this process, and how its clock is set."""
    clock = ManualClock(BEGAN.at)
    system = LocalSystem({"toy": FAMILY.graph({})}, placement=placement, clock=clock)
    serving = asyncio.create_task(system.serve())
    try:
        yield system, lambda now: clock.advance(max(0.0, now - clock.now()))
    finally:
        serving.cancel()
        await asyncio.wait({serving})


async def replayed(path: Path, placement: Placement | None = None) -> Outcome:
    """A recording of the toy family, run in this process on a manual clock; nothing of it is left."""
    async with local(placement) as (system, advance):
        before = system.census()
        recording = read(path)
        if isinstance(recording.began, Opened):
            outcome = await Repeat(recording, system.client, advance).run()
        else:
            outcome = await Replay(recording, CONVERSATION, system.client, advance).run()
        system.run()
        assert system.census() == before
        return outcome


def quiet(items: int) -> np.ndarray:
    return np.zeros(items * CONVERSATION.mic_item, np.float32)
