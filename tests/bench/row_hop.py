"""What it costs to run a node on another worker: its inputs there, its outputs back."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from mstar.client.launch import launch
from mstar.placement import placement_of
from tests.bench.report import Gate, Metric, Row
from tests.bench.runtime import MODULES, followed

SIZES = {"8B": 1, "4kB": 512, "64kB": 1 << 13, "1MB": 1 << 17}
"""Of the array that goes there and back, in float64 values."""
FLOOR = 400.0
"""Microseconds that a small firing across two workers may take."""


def run(*, quick: bool) -> Row:
    """Loops of which each pass crosses twice, over shared memory and over TCP, less what fires at home."""
    count, passes = (2, 50) if quick else (9, 200)
    metrics = []
    for transport in ("shared", "tcp"):
        for name, times in asyncio.run(_measured(transport, count, passes)).items():
            gate = Gate("p50", FLOOR) if (transport, name) == ("shared", "8B") else None
            metrics.append(Metric(f"{transport}_{name}", "µs", times, gate))
    return Row(
        "hop",
        tuple(metrics),
        notes=("a firing on another worker: two messages, with an array of this size there and back",),
    )


async def _measured(transport: str, count: int, passes: int) -> dict[str, tuple[float, ...]]:
    """Size → microseconds of a crossing, each the mean of a loop."""
    tree = {
        "ranks": {"near": {}, "far": {}},
        "families": {"nothing": {"default": "near", "nodes": {"far": "far"}}},
        "transport": transport,
        "oversubscribe": True,
    }
    launched = launch({"nothing": {"module": MODULES["nothing"], "settings": {}}}, placement_of(tree))
    try:
        await launched.ready()
        session = await launched.client.open("nothing")

        async def mean(task: str, value: object, limit: str) -> float:
            began = time.perf_counter()
            await followed(session.start(task, {"value": value}, {limit: passes}))
            return (time.perf_counter() - began) / passes * 1e6

        home = min([await mean("count", 1, "passes") for _ in range(3)])
        return {
            name: tuple([await mean("cross", np.zeros(size), "crossings") - home for _ in range(count)])
            for name, size in SIZES.items()
        }
    finally:
        await launched.stop()
