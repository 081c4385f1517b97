"""A family whose nodes do no work: what is left is the runtime's own cost (torch-free)."""

from __future__ import annotations

from collections.abc import Mapping

from mstar.graph.declare import (
    Component,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    LiveInput,
    Loop,
    Partition,
    Sequential,
    StreamingGraphEdge,
    Task,
    Walk,
)
from mstar.tensors import Value

PASSES = 1000
NODES = "tests.bench.nothing_nodes"


class Nothing:
    """`count`: a loop of `PASSES` passes that hand a number on; `listen`: each item of `ticks` comes back.

    `cross`: a loop of which each pass hands a value from `near` to `far` and back.
    """

    def graph(self, _: Mapping[str, Value]) -> Graph:
        passes = Loop(
            "passes",
            GraphNode("same", ("value",), (GraphEdge("value", "same"),)),
            PASSES,
            outputs=(Emit("value", "signal"),),
        )
        crossings = Loop(
            "crossings",
            Sequential(
                (
                    GraphNode("near", ("value",), (GraphEdge("sent", "far"),)),
                    GraphNode("far", ("sent",), (GraphEdge("value", "near"),)),
                )
            ),
            PASSES,
            outputs=(Emit("value", "signal"),),
        )
        return Graph(
            name="nothing",
            components=tuple(Component(name, f"{NODES}:{name}") for name in ("same", "echo", "near", "far")),
            partitions=(
                Partition("counting", (Walk("count", passes),)),
                Partition("crossing", (Walk("cross", crossings),)),
                Partition("echoing", (Walk("answer", GraphNode("echo", ("ticks",), (Emit("tick", "signal"),))),)),
            ),
            live=(LiveInput("ticks", edges=(StreamingGraphEdge("ticks", "echoing", "echo"),)),),
            tasks=(
                Task("count", {"counting": "count"}, ("value",)),
                Task("cross", {"crossing": "cross"}, ("value",)),
                Task("listen", {"echoing": "answer"}, standing=True),
            ),
        )


FAMILY = Nothing()
