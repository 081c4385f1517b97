"""V-JEPA 2 and its planner under every placement: nested loops over several ranks, imagined frames that move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from models.vjepa2 import model
from models.vjepa2.model import FAMILY
from mstar.client import Request, Session
from mstar.placement import Placement, one_rank, placement_of
from tests.system.answers import Answer, answer_of
from tests.system.placed import CLOCKED, Placed
from tests.system.shapes import apart, shipped

TINY: dict[str, Any] = {"tiny": 1}
RANDOM = np.random.default_rng(11)
PICTURES = RANDOM.integers(0, 256, (6, 72, 96, 3), np.uint8)
STATE = np.array([0.1, -0.2, 0.3, 0.0, 0.1, 0.2, 0.5], np.float32)
ACTIONS = RANDOM.normal(0, 0.1, (8, 7)).astype(np.float32)
GOAL = {"goal": {"image": PICTURES[5]}, "state": STATE}


def rank_of(nodes: Mapping[str, str], default: str) -> Placement:
    """Nodes on ranks of their own."""
    ranks: dict[str, dict[str, int]] = {name: {"threads": 1} for name in {default, *nodes.values()}}
    spots = {"default": default, "nodes": dict(nodes)}
    return placement_of({"ranks": ranks, "families": {"vjepa2": spots}, "oversubscribe": True})


GRAPH = FAMILY.graph(TINY)
SHAPES = {
    "one rank": one_rank(),
    "apart": apart(GRAPH),
    "context": rank_of({"imagine_first": "context", "look": "eyes", "watch": "eyes"}, "world"),
    "scores": rank_of({"score": "scores", "improve": "scores", "sample": "scores"}, "world"),
    "clips": rank_of({"encoder": "eyes", "class_encoder": "eyes", "clip": "eyes"}, "world"),
    **shipped(model),
}
"""`context`: a plan's first frames are computed on one rank and imagined from on another, so that K/V move twice an
iteration; `scores`: both loops of a plan are divided."""
DIVIDED = ("apart", "context", "scores", "encoder")
LOOPS = ("apart", "context", "scores")
"""Of them those that divide what goes round."""


def rolling(session: Session, task: str, **settings: Any) -> Request:
    return session.start(
        task, {"frames": PICTURES[:2], "actions": ACTIONS, "states": STATE[None] * [[1], [2]]}, settings
    )


def planning(session: Session, number: int, **settings: Any) -> Request:
    asked = {"observation": PICTURES[number], **GOAL}
    return session.start("plan_image", asked, {"seed": number, "horizon": 3, "samples": 20, **settings})


CLIP = {"frames": PICTURES}
FAMILY_PLACED = Placed(
    GRAPH,
    TINY,
    {
        "clips are encoded": lambda session: session.start("encode", CLIP),
        "places are predicted": lambda session: session.start(
            "predict", {**CLIP, "context": np.arange(32), "target": np.array([40, 3])}
        ),
        "clips are named": lambda session: session.start("classify", CLIP),
        "frames are encoded": lambda session: session.start("embed", {"frames": PICTURES[:3]}),
        "a rollout": lambda session: rolling(session, "rollout"),
        "a rollout frame by frame": lambda session: rolling(session, "rollout_streaming", horizon=4),
        "pictures": lambda session: rolling(session, "imagine", horizon=3),
        "a plan": lambda session: planning(session, 1),
        "another plan": lambda session: planning(session, 2, objective="mean"),
    },
)


@pytest.mark.parametrize("wire", [False, True], ids=["by reference", "over the wire"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_placement_gives_the_same_bit_for_bit_and_leaves_nothing(name: str, wire: bool) -> None:
    FAMILY_PLACED.is_the_same(SHAPES[name], wire=wire)


def watched(placement: Placement) -> list[Answer]:
    """Plans from three frames of a camera, each of which comes a little after its plan was asked for."""
    system = FAMILY_PLACED.system(placement)
    session = system.open("vjepa2")
    answers = []
    for number in range(3):
        request = session.start("plan", GOAL, {"seed": number, "samples": 20}, positions={"camera": number})
        system.run()
        session.feed("camera", number, PICTURES[number])
        system.run()
        answers.append(answer_of(request.drain(), CLOCKED))
        assert {plan["observation"] for plan in answers[-1]["plan"]} == {number}
    return answers


@pytest.mark.parametrize("name", SHAPES)
def test_a_camera_is_planned_from_wherever_its_frames_are_looked_at(name: str) -> None:
    assert watched(SHAPES[name]) == watched(SHAPES["one rank"])


@pytest.mark.parametrize("name", SHAPES)
def test_neither_passes_nor_iterations_are_told_to_the_conductor(name: str) -> None:
    asks = {
        "short": lambda session: planning(session, 1, iterations=2, horizon=2),
        "long": lambda session: planning(session, 1, iterations=5, horizon=4),
    }
    placed = Placed(GRAPH, TINY, asks)
    short, long = (placed.crossings(SHAPES[name], ask) for ask in asks)
    assert short["conductor"] == long["conductor"]
    if name in LOOPS:
        assert long["Fire"] > short["Fire"]
    else:
        assert long == short  # loops at home tell nobody anything
    if name == "one rank":
        assert long.keys() == {"conductor"}


def test_what_is_imagined_moves_in_each_iteration_to_where_it_goes_on() -> None:
    asks = {str(n): lambda session, n=n: planning(session, 1, iterations=n) for n in (1, 4)}
    placed = Placed(GRAPH, TINY, asks)
    once, four = (placed.crossings(SHAPES["context"], ask)["Image"] for ask in asks)
    assert (once, four) == (1, 7)  # there in every iteration, and back between them


@pytest.mark.parametrize("name", DIVIDED)
def test_an_interrupted_plan_stops_on_every_rank(name: str) -> None:
    FAMILY_PLACED.is_interrupted(SHAPES[name], "a plan")


@pytest.mark.parametrize("name", DIVIDED)
def test_a_newer_plan_supersedes_one_that_is_spread_over_ranks(name: str) -> None:
    FAMILY_PLACED.is_superseded(SHAPES[name], "a plan", "another plan")


@pytest.mark.parametrize("name", DIVIDED)
@pytest.mark.parametrize("ask", ["a plan", "a rollout frame by frame"])
def test_a_client_that_leaves_leaves_nothing_on_any_rank(name: str, ask: str) -> None:
    FAMILY_PLACED.is_left(SHAPES[name], ask)


@pytest.mark.parametrize("name", DIVIDED)
def test_any_rank_of_a_planner_may_be_lost(name: str) -> None:
    FAMILY_PLACED.loses_workers(SHAPES[name], "a plan")
