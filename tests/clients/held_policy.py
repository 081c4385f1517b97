"""A policy that takes as long as a test wants: its one node waits for the named pipe `gate` to be opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from models.registry import Card, Policy
from mstar.graph.declare import Component, Emit, Graph, GraphNode, Partition, Task, Walk
from mstar.submodule import Call, Output, Outputs, Packed, Step
from mstar.tensors import Value

HORIZON, SIZE = 4, 2


class Held:
    """observation → actions, all zero."""

    max_batch = 1

    def __init__(self, gate: Path) -> None:
        self._gate = gate

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        self._gate.read_bytes()  # returns when somebody has opened the other end, and closed it
        return {"actions": [{"actions": np.zeros((HORIZON, SIZE), np.float32), "masked": []} for _ in step.calls]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False


def held(settings: Mapping[str, Value]) -> Held:
    """The node."""
    return Held(Path(str(settings["gate"])))


class HeldPolicy:
    """See the module."""

    card = Card("held", policy=Policy(HORIZON, SIZE, (("image",),), {("state",): 0}, side=8))
    settings = ("gate",)

    def graph(self, settings: Mapping[str, Value]) -> Graph:
        """One node."""
        node = GraphNode("held", ("observation",), (Emit("actions", "action"),))
        return Graph(
            name="held",
            components=(Component("held", "tests.clients.held_policy:held"),),
            partitions=(Partition("policy", (Walk("act", node),)),),
            live=(),
            tasks=(Task("act", {"policy": "act"}, ("observation",)),),
        )


FAMILY = HeldPolicy()
