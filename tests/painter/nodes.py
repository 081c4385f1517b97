"""The nodes of both families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.toy.nodes.plain import PerCall
from mstar.submodule import Call, Output
from mstar.tensors import Value
from tests.painter.model import HORIZON, STEP
from tests.painter.watcher import CAMERAS


def see(_: Mapping[str, Value]) -> PerCall:
    def run(call: Call) -> Mapping[str, Output]:
        picture: Any = call.inputs["camera" if "camera" in call.inputs else "observation"]
        span = call.spans.get("camera")
        return {
            "plan": {
                "actions": np.tile(np.asarray(call.inputs["state"], np.float32), (HORIZON, 1)),
                "iteration": 1,
                "final": True,
                "deadline_hit": False,
                "energy": float(np.asarray(picture, np.float64).mean()),
                "elapsed_ms": 0.0,
                "observation": -1 if span is None else span.first,
            }
        }

    return PerCall(run, ("plan",))


def begin(_: Mapping[str, Value]) -> PerCall:
    def run(call: Call) -> Mapping[str, Output]:
        frames: Any = call.inputs["frames"]
        return {"canvas": np.asarray(frames[-1], np.uint8), "moves": call.inputs["actions"]}

    return PerCall(run, ("canvas", "moves"))


def paint(_: Mapping[str, Value]) -> PerCall:
    def run(call: Call) -> Mapping[str, Output]:
        moved = np.roll(np.asarray(call.inputs["canvas"], np.uint8), STEP, axis=1)
        state = np.zeros(2, np.float32)
        return {"canvas": moved, "picture": {"picture": moved, "state": state, "frame": call.iteration}}

    def stop(call: Call) -> bool:
        moves: Any = call.inputs["moves"]
        return call.iteration + 1 >= len(moves)

    return PerCall(run, ("canvas", "picture"), stop=stop)


def look(_: Mapping[str, Value]) -> PerCall:
    def run(call: Call) -> Mapping[str, Output]:
        observation: Any = call.inputs["observation"]
        seen = [name for name in CAMERAS if name in observation]
        means = [np.asarray(observation[name], np.float64).mean(axis=(0, 1)) for name in seen]
        rows = np.zeros((4, 3), np.float32)
        rows[: len(means)] = means
        return {"actions": {"actions": rows, "masked": [name for name in CAMERAS if name not in seen]}}

    return PerCall(run, ("actions",))
