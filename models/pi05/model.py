"""The π0.5 family's Walk Graph (torch-free).

    prefill     observe(observation) → vit_encoder → LLM: pictures and prompt into the K/V cache
                                     → the noise and what the chunk is held to, kept for
    action_gen  Loop of flow steps: LLM ↺ actions over the cached prefix → act → actions

The task `act` runs both: one observation in, one chunk of actions out (see `models.pi05.observation`).
"""

from __future__ import annotations

from collections.abc import Mapping

from models.card import Card, Policy
from models.pi05.shape import shape
from mstar.graph.declare import (
    Component,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    Keep,
    Loop,
    Partition,
    Sequential,
    Task,
    Walk,
)
from mstar.tensors import Value

FLOW_STEPS = 10
"""Passes from noise to actions; a request's setting `flow_steps` may ask for fewer."""


def _prefill() -> Sequential:
    observed = ("tokens", "digest")
    return Sequential(
        (
            GraphNode(
                "observe",
                ("observation",),
                (
                    GraphEdge("pictures", "vit_encoder"),
                    *(GraphEdge(name, "LLM") for name in observed),
                    Keep("actions"),
                    Keep("guide"),
                ),
            ),
            GraphNode("vit_encoder", ("pictures",), (GraphEdge("image_tokens", "LLM"),)),
            GraphNode("LLM", ("image_tokens", *observed), prompt=True),
        )
    )


def _action_gen() -> Sequential:
    step = GraphNode("LLM", ("actions", "guide"), (GraphEdge("actions", "LLM"),))
    return Sequential(
        (
            Loop("flow_steps", step, max_iters=FLOW_STEPS, outputs=(GraphEdge("actions", "act"),)),
            GraphNode("act", ("actions", "guide"), (Emit("actions", "action"),)),
        )
    )


class Pi05:
    """Settings: `checkpoint` (a folder in lerobot's layout) or `tiny: true` (random weights); `robot` (droid, libero,
    aloha: whose client's keys are read; by default the policy's own); `statistics` (a file, by default those beside
    the weights; "none" = values are normalised already); `dtype` (float32, bfloat16; see `models.blocks.precision`).

    Settings of a request: `seed` (of the noise), `flow_steps`.
    """

    card = Card("pi05")
    settings = ("checkpoint", "tiny", "robot", "statistics", "dtype")

    def configured(self, settings: Mapping[str, Value]) -> Card:
        """The card of the policy that the settings name. Raises WeightsError."""
        found = shape(settings)
        robot, config = found.robot, found.config
        policy = Policy(
            horizon=config.horizon,
            action_dim=found.channels,
            cameras=tuple(robot.cameras.values()),
            state=dict(robot.state),
            side=config.vision.image,
            rate=robot.rate,
            blends=True,
            settings=("flow_steps",),
            warm={},
        )
        return Card("pi05", policy=policy)

    def graph(self, _: Mapping[str, Value]) -> Graph:
        """The Walk Graph."""
        nodes = "models.pi05.nodes"
        return Graph(
            name="pi05",
            components=(
                Component("observe", f"{nodes}.observing:observe"),
                Component("vit_encoder", f"{nodes}.seeing:vit_encoder"),
                Component("LLM", f"{nodes}.acting:llm", engine="kv"),
                Component("act", f"{nodes}.acting:act"),
            ),
            partitions=(
                Partition(
                    "policy", (Walk("prefill", _prefill(), then="action_gen"), Walk("action_gen", _action_gen()))
                ),
            ),
            tasks=(Task("act", {"policy": "prefill"}, ("observation",)),),
        )


FAMILY = Pi05()
