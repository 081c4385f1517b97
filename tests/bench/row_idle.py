"""What 50 sessions cost that are connected and do nothing."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from tests.bench.call import calling
from tests.bench.report import Gate, Metric, Row
from tests.bench.serving import Served, served

SESSIONS = 50
MOST_PERCENT = 1.0


def run(*, quick: bool) -> Row:
    """30 s of silence, 8 if quick."""
    with served("--max-sessions", str(SESSIONS)) as server:
        used, seconds = asyncio.run(_idle(server, 8.0 if quick else 30.0))
    percent = Metric("cpu", "% of a core", (100 * used / seconds,), Gate("mean", MOST_PERCENT))
    return Row("idle", (percent,), ({"sessions": SESSIONS, "seconds": seconds, "cpu_s": used},))


async def _idle(server: Served, seconds: float) -> tuple[float, float]:
    """CPU seconds of all the server's processes, and seconds passed."""
    async with AsyncExitStack() as stack:
        for _ in range(SESSIONS):
            await stack.enter_async_context(calling(server, session={}, feeding=False))
        await asyncio.sleep(1.0)
        before, began = server.cpu_seconds(), time.monotonic()
        await asyncio.sleep(seconds)
        return server.cpu_seconds() - before, time.monotonic() - began
