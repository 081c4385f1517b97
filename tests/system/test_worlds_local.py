"""Closed loops in small worlds: from a camera's pictures to a goal's, planned by the whole runtime in one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.vjepa2.config import SHIPPED
from models.worlds.planning import Planned
from models.worlds.recipe import RECIPES
from models.worlds.trial import Trip, at_random, goals, rate, still, told, trip
from tests.arenas import made

SEED, GOALS = 0, 40


def attempted(name: str, settings: Mapping[str, Any] | None = None, count: int = GOALS) -> dict[str, list[Trip]]:
    """The same goals for everybody; prints what came of it."""
    recipe = RECIPES[name]
    arena = made(recipe.arena)
    chosen = goals(arena, count, SEED)
    planned = Planned(SHIPPED / name, settings=settings or {})
    found = {}
    for who, choose in (("planned", planned), ("at random", at_random(SEED)), ("still", still)):
        found[who] = [trip(arena, goal, choose, recipe.steps) for goal in chosen]
        print(told(f"{name}, goals of seed {SEED}, {who}", found[who], arena.unit))
    return found


def test_forty_goals_in_the_room_are_reached_from_pixels() -> None:
    found = attempted("room")
    assert rate(found["planned"]) >= 0.95
    assert rate(found["at random"]) <= 0.2
    assert rate(found["still"]) == 0
    assert np.mean([each.steps for each in found["planned"]]) < 4  # the farthest are four actions away


def test_a_cost_of_the_last_frame_alone_lets_a_robot_wander_that_acts_one_action_a_plan() -> None:
    arena, chosen = RECIPES["room"].arena(), goals(RECIPES["room"].arena(), 6, SEED)
    planned = Planned(SHIPPED / "room", settings={"objective": "last"})
    wandered = [trip(arena, goal, planned, 6) for goal in chosen]
    assert rate(wandered) <= 0.5  # with the mean over the frames all are reached
