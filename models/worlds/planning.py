"""A trained world model that plans, served by the whole runtime in one process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from models.vjepa2.model import FAMILY
from models.worlds.arena import Arena, Floats
from models.worlds.trial import Goal
from mstar.local import LocalSystem
from mstar.messages import Emission, RequestEnded
from mstar.tensors import Value


class Planned:
    """Chooses the first action of a fresh plan at every step; plans are equal for equal seeds."""

    def __init__(self, folder: Path, *, seed: int = 0, settings: Mapping[str, Value] | None = None) -> None:
        """`settings` of every plan, beside the seed."""
        given = {"world": str(folder)}
        self._system = LocalSystem({"vjepa2": FAMILY.graph(given)}, settings={"vjepa2": given})
        self._session = self._system.open("vjepa2")
        self._settings = dict(settings or {})
        self._seed = seed

    def __call__(self, arena: Arena, goal: Goal) -> Floats:
        self._seed += 1
        inputs: Mapping[str, Value] = {
            "observation": arena.picture(), "state": arena.state(), "goal": {"image": goal.picture},
        }  # fmt: skip
        request = self._session.start("plan_image", inputs, {"seed": self._seed, **self._settings})
        self._system.run()
        plan: Value = None
        for event in request.drain():
            match event:
                case Emission(output="plan", value=value):
                    plan = value
                case RequestEnded(status="failed", cause=cause):
                    raise RuntimeError(cause)
        assert isinstance(plan, Mapping)
        actions = plan["actions"]
        return actions[0]  # type: ignore[index, return-value]
