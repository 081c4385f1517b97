"""Planning time of the cross-entropy method by candidates and iterations, in the room; two robots at once beside one.

The whole runtime in one process: looking, encoding, imagining every candidate to its end, scoring, drawing again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch

from models.vjepa2.model import FAMILY
from models.worlds.recipe import ROOM
from models.worlds.trial import Goal, begin, goals
from mstar.client import Session
from mstar.local import LocalSystem
from mstar.messages import Emission
from mstar.tensors import Value
from tests.bench.report import Metric, Row, Sample

SAMPLES = (24, 96, 400)
ITERATIONS = (1, 4, 10)
SETTINGS = {"world": "room"}


def run(*, quick: bool) -> Row:
    """Ten rounds over all of them, two if quick."""
    torch.set_num_threads(2)
    bench = _Bench()
    bench.seconds(1, {"samples": SAMPLES[0], "iterations": 1})
    taken: list[Sample] = []
    for _ in range(2 if quick else 10):
        sample: dict[str, float] = {"encode_ms": bench.encode() * 1e3}
        for samples in SAMPLES:
            for iterations in ITERATIONS:
                settings = {"samples": samples, "iterations": iterations}
                sample[f"plan_{samples}x{iterations}_ms"] = bench.seconds(1, settings) * 1e3
        usual: Mapping[str, Value] = {}
        sample["two_to_one"] = bench.seconds(2, usual) / bench.seconds(1, usual)
        taken.append(sample)

    def metric(name: str, unit: str) -> Metric:
        key = f"{name}_ms" if unit == "ms" else name
        return Metric(name, unit, tuple(float(each[key]) for each in taken))

    plans = [metric(f"plan_{samples}x{iterations}", "ms") for samples in SAMPLES for iterations in ITERATIONS]
    horizon = ROOM.config.planner.horizon
    return Row(
        "plan",
        (metric("encode", "ms"), *plans, metric("two_to_one", "×")),
        tuple(taken),
        notes=(f"horizon {horizon}; a plan holds one encode, of the observation and the goal together",),
    )


class _Bench:
    """Sessions that plan from the same picture to the same goal."""

    def __init__(self) -> None:
        self._system = LocalSystem({"vjepa2": FAMILY.graph(SETTINGS)}, settings={"vjepa2": SETTINGS})
        self._sessions: list[Session] = [self._system.open("vjepa2") for _ in range(2)]
        self._arena = ROOM.arena()
        self._goal: Goal = goals(self._arena, 1, 0)[0]
        begin(self._arena, self._goal)

    def seconds(self, robots: int, settings: Mapping[str, Value]) -> float:
        """Until all of them have their plan."""
        inputs: Mapping[str, Value] = {
            "observation": self._arena.picture(),
            "state": self._arena.state(),
            "goal": {"image": self._goal.picture},
        }
        began = time.perf_counter()
        requests = [session.start("plan_image", inputs, settings) for session in self._sessions[:robots]]
        self._system.run()
        took = time.perf_counter() - began
        for request in requests:
            plans = [event.value for event in request.drain() if isinstance(event, Emission)]
            if not plans or not isinstance(plans[-1], Mapping) or not plans[-1]["final"]:
                raise RuntimeError("a plan did not end")
        return took

    def encode(self) -> float:
        """One picture through the encoder, and its tokens to the client."""
        began = time.perf_counter()
        request = self._sessions[0].start("embed", {"frames": self._arena.picture()})
        self._system.run()
        took = time.perf_counter() - began
        if not any(isinstance(event, Emission) for event in request.drain()):
            raise RuntimeError("no latents came")
        return took
