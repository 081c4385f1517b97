"""What a firing costs when its node does no work."""

from __future__ import annotations

import asyncio
import select
import time

import numpy as np

from mstar.bus.local import LocalBus
from mstar.client import Client, Emission
from mstar.clock import MonotonicClock
from mstar.graph.cursor import Cursor
from mstar.graph.plan import WalkPlan, compile_graph
from mstar.local import LocalSystem
from mstar.messages import BeginRequest, BeginWalk, Feed, SessionOpened
from mstar.placement import one_rank
from mstar.transport.inline import InlineTransport
from mstar.worker.build import build_worker
from mstar.worker.executor import ComputeThread
from tests.bench.nothing import FAMILY, PASSES
from tests.bench.report import Gate, Metric, Row
from tests.bench.runtime import PATIENCE_SECONDS, followed, running

WARM = 50
"""First values that are not kept."""
SHORT = 100
"""Passes of a batch that is so short that it mostly has a core to itself."""


def run(*, quick: bool) -> Row:
    """Batches of passes, and single firings between threads and between processes."""
    count = 3 if quick else 15
    plan = compile_graph(FAMILY.graph({})).walks[("counting", "count")]
    cursor = tuple(_cursor(plan) for _ in range(count))
    inline, worked = _inline(10 * count)
    crossing = _crossing(100 * count)
    thread, processes = asyncio.run(_processes(count))
    return Row(
        "firing",
        (
            Metric("cursor", "µs", cursor),
            Metric("loop_pass", "µs", inline, Gate("p50", 80.0, aim=40.0)),
            Metric("loop_pass_cpu", "µs", worked, Gate("p50", 40.0)),
            Metric("compute_thread", "µs", thread, Gate("p50", 80.0, aim=40.0)),
            Metric("crossing", "µs", crossing, Gate("p50", 150.0)),
            Metric("processes", "µs", processes),
        ),
        notes=(
            "cursor: take and complete; loop_pass: in a worker, with scheduling and stateless engine",
            "compute_thread: the same in a worker process; crossing: main thread → compute thread → main thread",
            "processes: client → worker → client",
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


def _inline(count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Microseconds of a pass, and those of them that this thread had a core."""
    system = LocalSystem({"nothing": FAMILY.graph({})})
    session = system.open("nothing")
    times, worked = [], []
    for batch in range(1 + count):
        session.start("count", {"value": 1}, {"passes": SHORT})
        began, used = time.perf_counter(), time.thread_time()
        system.run()
        if batch:
            worked.append((time.thread_time() - used) / SHORT * 1e6)
            times.append((time.perf_counter() - began) / SHORT * 1e6)
    return tuple(times), tuple(worked)


def _crossing(count: int) -> tuple[float, ...]:
    """Microseconds of a firing that one thread begins, the compute thread runs and the first one takes up."""
    graph, placement, name = FAMILY.graph({}), one_rank(), "worker.main"
    bus, thread = LocalBus(), ComputeThread("compute")
    client = bus.endpoint("client")
    [rank] = placement.ranks
    worker = build_worker(
        name,
        rank,
        {"nothing": graph},
        {"nothing": placement.place("nothing", graph)},
        {"nothing": {}},
        bus.endpoint(name),
        MonotonicClock(),
        thread,
        InlineTransport(),
    )
    worker.handle(SessionOpened("s", "nothing", "client", (name,), live={"ticks": (name,)}))
    worker.handle(BeginRequest("s", "s.0", "listen", 1, positions={"ticks": 0}))
    worker.handle(BeginWalk("s.0", "echoing", "answer"))
    client.receive()
    item = np.zeros(1)
    times = []
    for index in range(WARM + count):
        began = time.perf_counter()
        worker.handle(Feed("s", "", "ticks", index, item))
        worker.schedule()
        select.select([thread.descriptor], [], [], PATIENCE_SECONDS)
        thread.hush()
        worker.collect()
        times.append((time.perf_counter() - began) * 1e6)
        if not client.receive():
            raise RuntimeError(f"tick {index} did not come back")
    thread.close()
    return tuple(times[WARM:])


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
