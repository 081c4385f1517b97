"""The runtime as its own processes, without a server: conductor and workers over ZeroMQ."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mstar.client import Client, Emission, Request, RequestEnded
from mstar.client.launch import launch
from mstar.placement import placement_of

MODULES = {
    "voice": "models.voice.model",
    "speech": "tests.bench.speech",
    "nothing": "tests.bench.nothing",
}
THREADS = 2
PATIENCE_SECONDS = 60.0
"""What takes longer will not come any more."""
RANKS = {"ear": {"threads": 1}, "main": {"threads": THREADS}}
EAR = {"default": "main", "nodes": {"vad": "ear", "turn": "ear"}}
"""The voice's own placement; all other families run on `main`."""


@asynccontextmanager
async def running(*families: str) -> AsyncIterator[Client]:
    """Families of `MODULES`, loaded; raises WorkerLost if one of the processes ends while it loads."""
    placed = {name: EAR if name == "voice" else {"default": "main"} for name in families}
    ranks = RANKS if "voice" in families else {"main": RANKS["main"]}
    given: Mapping[str, Mapping[str, Any]] = {name: {"module": MODULES[name], "settings": {}} for name in families}
    launched = launch(given, placement_of({"ranks": ranks, "families": placed, "oversubscribe": True}))
    try:
        await launched.ready()
        yield launched.client
    finally:
        await launched.stop()


@dataclass(frozen=True, slots=True)
class Arrival:
    """An emission of a request and when it came (`time.perf_counter`)."""

    at: float
    output: str
    value: Any


async def followed(request: Request) -> list[Arrival]:
    """All emissions of a request. Raises RuntimeError unless it ends as done."""
    arrivals: list[Arrival] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for event in request:
            match event:
                case Emission():
                    arrivals.append(Arrival(time.perf_counter(), event.output, event.value))
                case RequestEnded() if event.status != "done":
                    raise RuntimeError(f"{request.task} {event.status} at {event.node}: {event.cause}")
                case _:
                    pass
    return arrivals
