"""The pixel room, and how goals are drawn and reached in it."""

from __future__ import annotations

import numpy as np
import pytest

from models.worlds.arena import walk
from models.worlds.room import HALF, SIDE, WALL, PixelRoom
from models.worlds.trial import Goal, at_random, begin, drawn, goals, rate, still, told, trip

RED = 0


def centre(picture: np.ndarray, empty: np.ndarray) -> tuple[float, float]:
    """Where the picture differs from the empty room, right and down from 0 to 1."""
    off = np.abs(picture.astype(float) - empty).sum(axis=2)
    across, down = (np.arange(SIDE) + 0.5) / SIDE, (np.arange(SIDE) + 0.5) / SIDE
    return float((off.sum(0) * across).sum() / off.sum()), float((off.sum(1) * down).sum() / off.sum())


def test_the_ball_is_seen_where_it_is() -> None:
    room = PixelRoom()
    room._place = np.array((0.25, -0.5), np.float32)
    seen = centre(room.picture(), room._floor)
    assert seen == pytest.approx(room.mark(room.state()), abs=0.03)
    assert room.picture().shape == (SIDE, SIDE, 3)


def test_an_action_is_a_change_of_place_within_reach_and_walls() -> None:
    room = PixelRoom()
    room._place = np.zeros(2, np.float32)
    room.act(np.array((0.1, -0.2), np.float32))
    np.testing.assert_allclose(room.state(), (0.1, -0.2), atol=1e-6)
    room.act(np.array((9.0, 0.0), np.float32))
    np.testing.assert_allclose(room.state(), (0.1 + room.reach, -0.2), atol=1e-6)
    for _ in range(9):
        room.act(np.array((9.0, -9.0), np.float32))
    np.testing.assert_allclose(room.state(), (WALL, -WALL), atol=1e-6)
    assert room.distance(np.array((WALL, WALL), np.float32)) == pytest.approx(2 * WALL * HALF, rel=1e-6)


def test_a_walk_shows_what_its_actions_did() -> None:
    walks = walk(PixelRoom(), 5, 4, np.random.default_rng(1))
    assert walks.pictures.shape == (5, 4, SIDE, SIDE, 3)
    assert walks.states.shape == walks.actions.shape == (5, 4, 2)
    moved = np.clip(walks.states[:, :-1] + walks.actions[:, :-1], -WALL, WALL)
    np.testing.assert_allclose(walks.states[:, 1:], moved, atol=1e-6)
    again = walk(PixelRoom(), 5, 4, np.random.default_rng(1))
    np.testing.assert_array_equal(again.pictures, walks.pictures)


def test_goals_are_the_same_for_the_same_seed_and_none_is_reached_already() -> None:
    room = PixelRoom()
    first, again, other = goals(room, 20, 3), goals(PixelRoom(), 20, 3), goals(room, 20, 4)
    for one, two in zip(first, again, strict=True):
        assert one.start == two.start
        np.testing.assert_array_equal(one.picture, two.picture)
    assert {goal.start for goal in first}.isdisjoint(goal.start for goal in other)
    for goal in first:
        begin(room, goal)
        assert room.distance(goal.state) > room.near


def straight(room: PixelRoom, goal: Goal) -> np.ndarray:
    """Knows what the planner has to find out."""
    return goal.state - room.state()


def test_a_trip_ends_when_the_goal_is_reached() -> None:
    room = PixelRoom()
    goal = next(drawn(room, 0))
    taken = trip(room, goal, straight, 10)  # type: ignore[arg-type]
    assert taken.reached
    assert taken.steps == pytest.approx(np.abs(_away(room, goal)).max() / room.reach, abs=1)
    assert taken.last < room.near < taken.first
    held = trip(room, goal, still, 10)
    assert (held.reached, held.steps, held.first, held.last) == (False, 10, taken.first, taken.first)


def _away(room: PixelRoom, goal: Goal) -> np.ndarray:
    begin(room, goal)
    return goal.state - room.state()


def test_who_acts_at_random_seldom_gets_there() -> None:
    room = PixelRoom()
    trips = [trip(room, goal, at_random(goal.start), 10) for goal in goals(room, 200, 5)]
    assert 0.02 < rate(trips) < 0.2
    line = told("at random", trips, room.unit)
    assert f"of 200 goals ({rate(trips):.1%})" in line
