"""A planner that plans nothing and imagines that all it sees moves to the right (torch-free).

plan     camera ~> see → plan: its energy is the picture's mean, its actions the state, once a row
imagine  begin → loop "horizon": paint ↺ canvas → picture, every pass
"""

from __future__ import annotations

from collections.abc import Mapping

from models.card import Card, Planner
from mstar.graph.declare import (
    Component,
    DynamicLoop,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    LiveInput,
    Partition,
    Sequential,
    StreamingGraphEdge,
    Task,
    Walk,
)
from mstar.streaming.policies import LatestChunkPolicy
from mstar.tensors import Value

HORIZON, STEP = 4, 16
"""Actions of a plan; pixels that everything moves with each."""
PLANNER = Planner(
    horizon=HORIZON, action_dim=2, state_dim=2, side=64, rate=10.0, iterations=1, imagine="imagine", settings=("hold",)
)


class Painter:
    """It has no settings. A request's setting `hold` makes its plan wait until it is interrupted."""

    card = Card(__name__, planner=PLANNER)
    settings = ()

    def graph(self, _: Mapping[str, Value]) -> Graph:
        """The Walk Graph."""
        nodes = "tests.painter.nodes"

        def plan(name: str, picture: str) -> Walk:
            see = GraphNode(f"see_{picture}", (picture, "goal", "state"), (Emit("plan", "action"),), component="see")
            return Walk(name, see if picture != "camera" else Sequential((see,)))

        paint = GraphNode("paint", ("canvas", "moves"), (GraphEdge("canvas", "paint"), Emit("picture", "image")))
        begin = GraphNode(
            "begin", ("frames", "actions", "states"), (GraphEdge("canvas", "paint"), GraphEdge("moves", "paint"))
        )
        imagine = Walk("imagine", Sequential((begin, DynamicLoop("horizon", paint, 32))))
        return Graph(
            name="painter",
            components=tuple(Component(name, f"{nodes}:{name}") for name in ("see", "begin", "paint")),
            partitions=(Partition("world", (plan("plan", "camera"), plan("plan_image", "observation"), imagine)),),
            live=(
                LiveInput(
                    "camera",
                    edges=(StreamingGraphEdge("camera", "world", "see_camera", LatestChunkPolicy(), bound=2),),
                    slices=("begin",),
                    full="drop_oldest",
                    history=8,
                ),
            ),
            tasks=(
                Task("plan", {"world": "plan"}, ("goal", "state")),
                Task("plan_image", {"world": "plan_image"}, ("observation", "goal", "state")),
                Task("imagine", {"world": "imagine"}, ("frames", "actions", "states")),
            ),
        )


FAMILY = Painter()
