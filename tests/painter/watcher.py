"""A policy of four cameras, whose actions are the mean red, green and blue of each (torch-free)."""

from __future__ import annotations

from collections.abc import Mapping

from models.card import Card, Policy
from mstar.graph.declare import Component, Emit, Graph, GraphNode, Partition, Task, Walk
from mstar.tensors import Value

CAMERAS = ("front", "left", "right", "wrist")
POLICY = Policy(
    horizon=4, action_dim=3, cameras=tuple((name,) for name in CAMERAS), state={("state",): 2}, side=64, rate=10.0
)


class Watcher:
    """It has no settings."""

    card = Card(__name__, policy=POLICY)
    settings = ()

    def graph(self, _: Mapping[str, Value]) -> Graph:
        """The Walk Graph."""
        look = GraphNode("look", ("observation",), (Emit("actions", "action"),))
        return Graph(
            name="watcher",
            components=(Component("look", "tests.painter.nodes:look"),),
            partitions=(Partition("policy", (Walk("act", look),)),),
            tasks=(Task("act", {"policy": "act"}, ("observation",)),),
        )


FAMILY = Watcher()
