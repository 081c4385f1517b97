"""The worlds of the package under every placement: the same plans and the same imagined pictures, bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from models.vjepa2 import model
from models.vjepa2.model import FAMILY
from models.worlds.recipe import ROOM
from models.worlds.room import SIDE
from models.worlds.trial import begin, goals
from mstar.client import Request, Session
from mstar.placement import one_rank
from tests.system.placed import Placed
from tests.system.shapes import apart, shipped

GOALS = 2
SHAPES = {"one rank": one_rank(), **shipped(model)}
WORLDS = ("room", "reacher")


def scenes(world: str) -> list[dict[str, Any]]:
    """What planners are asked: goals in the room; of the arm, which not every machine can paint, any pictures."""
    if world == "room":
        arena, asked = ROOM.arena(), []
        for goal in goals(arena, GOALS, 0):
            begin(arena, goal)
            asked.append({"observation": arena.picture(), "state": arena.state(), "goal": {"image": goal.picture}})
        return asked
    drawn = np.random.default_rng(4)
    pictures = drawn.integers(0, 256, (GOALS, 2, SIDE, SIDE, 3), np.uint8)
    return [
        {"observation": now, "state": drawn.uniform(-1, 1, 2).astype(np.float32), "goal": {"image": then}}
        for now, then in pictures
    ]


def planning(scene: dict[str, Any], number: int, session: Session) -> Request:
    return session.start("plan_image", scene, {"seed": number})


def imagining(scene: dict[str, Any], session: Session) -> Request:
    moves = np.full((3, 2), 0.1, np.float32)
    asked = {"frames": scene["observation"][None], "actions": moves, "states": scene["state"][None]}
    return session.start("imagine", asked)


def placed(world: str) -> Placed:
    settings = {"world": world}
    seen = scenes(world)
    plans = {f"goal {number}": partial(planning, scene, number) for number, scene in enumerate(seen)}
    return Placed(FAMILY.graph(settings), settings, {**plans, "pictures": partial(imagining, seen[0])})


FAMILIES = {world: placed(world) for world in WORLDS}


@pytest.mark.parametrize(("world", "name"), [*(("room", name) for name in SHAPES), *((w, "apart") for w in WORLDS)])
def test_every_placement_plans_and_imagines_the_same_and_leaves_nothing(world: str, name: str) -> None:
    family = FAMILIES[world]
    family.is_the_same(apart(family.graph) if name == "apart" else SHAPES[name], wire=True)


def test_any_rank_of_a_world_may_be_lost() -> None:
    FAMILIES["room"].loses_workers(SHAPES["encoder"], "goal 0")
