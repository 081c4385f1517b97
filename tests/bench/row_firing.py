"""What a firing costs when its node does no work."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from mstar.client import Client, Emission
from mstar.graph.cursor import Cursor
from mstar.graph.plan import WalkPlan, compile_graph
from mstar.local import LocalSystem
from tests.bench.nothing import FAMILY, PASSES
from tests.bench.report import Gate, Metric, Row
from tests.bench.runtime import PATIENCE_SECONDS, followed, running

WARM = 50
"""First values that are not kept."""


def run(*, quick: bool) -> Row:
    """Batches of a thousand passes, and single round trips between processes."""
    count = 3 if quick else 15
    plan = compile_graph(FAMILY.graph({})).walks[("counting", "count")]
    cursor = tuple(_cursor(plan) for _ in range(count))
    inline = _inline(count)
    thread, processes = asyncio.run(_processes(count))
    return Row(
        "firing",
        (
            Metric("cursor", "µs", cursor),
            Metric("loop_pass", "µs", inline, Gate("p50", 80.0, aim=40.0)),
            Metric("compute_thread", "µs", thread, Gate("p50", 300.0, aim=150.0)),
            Metric("processes", "µs", processes),
        ),
        notes=(
            "cursor: take and complete; loop_pass: in a worker, with scheduling and stateless engine",
            "compute_thread: the same in a worker process; processes: client → worker → client",
        ),
    )


def _cursor(plan: WalkPlan) -> float:
    """Microseconds of taking and completing one pass, mean of a thousand."""
    cursor = Cursor(plan)
    cursor.put("value", 1)
    [node] = plan.node_ids
    began = time.perf_counter()
    for _ in range(PASSES):
        taken = cursor.take(node)
        cursor.complete(node, {"value": taken.inputs["value"]}, False)
    used = time.perf_counter() - began
    if not cursor.done:
        raise RuntimeError("the loop has not ended")
    return used / PASSES * 1e6


def _inline(count: int) -> tuple[float, ...]:
    system = LocalSystem({"nothing": FAMILY.graph({})})
    session = system.open("nothing")
    times = []
    for _ in range(count):
        session.start("count", {"value": 1})
        began = time.perf_counter()
        system.run()
        times.append((time.perf_counter() - began) / PASSES * 1e6)
    return tuple(times)


async def _processes(count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    async with running("nothing") as client:
        return await _passes(client, count), await _round_trips(client, 100 * count)


async def _passes(client: Client, count: int) -> tuple[float, ...]:
    """Microseconds from one pass to the next in a worker process."""
    times: list[float] = []
    session = await client.open("nothing")
    for _ in range(count):
        began = time.perf_counter()
        await followed(session.start("count", {"value": 1}))
        times.append((time.perf_counter() - began) / PASSES * 1e6)
    await session.close()
    return tuple(times)


async def _round_trips(client: Client, count: int) -> tuple[float, ...]:
    session = await client.open("nothing")
    request = session.start("listen", positions={"ticks": 0})
    events = aiter(request)
    times = []
    for index in range(WARM + count):
        began = time.perf_counter()
        session.feed("ticks", index, np.array([index]))
        event = await asyncio.wait_for(anext(events), PATIENCE_SECONDS)
        times.append((time.perf_counter() - began) * 1e6)
        if not isinstance(event, Emission) or np.asarray(event.value).item() != index:
            raise RuntimeError(f"tick {index} came back as {event}")
    await session.close()
    return tuple(times[WARM:])
