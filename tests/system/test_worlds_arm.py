"""MuJoCo's arm: what its camera sees, how its joints are driven, and what its walks and goals are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models.worlds.arena import Arena, walk
from models.worlds.recipe import REACHER
from models.worlds.trial import at_random, goals, rate, still, trip
from tests.arenas import made
from tests.system.test_worlds_local import attempted


@pytest.fixture(scope="module")
def arm() -> Arena:
    return made(REACHER.arena)


def test_a_change_of_the_joints_is_driven_to(arm: Arena) -> None:
    random = np.random.default_rng(3)
    for _ in range(8):
        arm.place(random)
        before = arm.state()
        action = random.uniform(-0.6, 0.6, 2).astype(np.float32)
        action[1] = -abs(action[1]) if before[1] > 0 else abs(action[1])  # away from the elbow's stop
        arm.act(action)
        off = arm.state() - before - action
        assert abs(math.remainder(float(off[0]), 2 * math.pi)) < 0.02
        assert abs(off[1]) < 0.02


def test_no_action_goes_beyond_reach_or_the_elbows_stop(arm: Arena) -> None:
    arm.place(np.random.default_rng(4))
    for _ in range(8):
        before = arm.state()
        arm.act(np.array((0.0, 9.0), np.float32))
        assert arm.state()[1] - before[1] < arm.reach + 0.02
    assert arm.state()[1] == pytest.approx(2.8, abs=0.02)


def test_the_fingertip_is_seen_where_it_is(arm: Arena) -> None:
    random = np.random.default_rng(5)
    for _ in range(6):
        arm.place(random)
        picture = arm.picture().astype(float)
        right, down = (min(63, int(64 * at)) for at in arm.mark(arm.state()))
        patch = picture[max(0, down - 1) : down + 2, max(0, right - 1) : right + 2]
        grey = picture.max(axis=2) - picture.min(axis=2) < 12  # the floor
        assert not grey[max(0, down - 1) : down + 2, max(0, right - 1) : right + 2].all(), patch
    arm.place(random)
    once = arm.picture()
    np.testing.assert_array_equal(once, arm.picture())


def test_distances_are_the_fingertips(arm: Arena) -> None:
    arm.place(np.random.default_rng(6))
    here = arm.state()
    assert arm.distance(here) == pytest.approx(0, abs=1e-6)
    assert arm.distance(here + np.array((math.pi, 0), np.float32)) == pytest.approx(
        2 * np.linalg.norm((0.1 + 0.11 * np.cos(here[1]), 0.11 * np.sin(here[1]))), rel=1e-3
    )


def test_a_walk_shows_what_its_actions_did(arm: Arena) -> None:
    walks = walk(arm, 3, 3, np.random.default_rng(7))
    assert walks.pictures.shape == (3, 3, 64, 64, 3)
    assert (walks.pictures[:, 0] != walks.pictures[:, 1]).any(axis=(1, 2, 3)).all()
    numbers = arm.bearings(walks.states.reshape(-1, 2))
    assert np.abs(numbers).max() <= 1.5
    turned = arm.bearings(walks.states.reshape(-1, 2) + np.array((2 * math.pi, 0), np.float32))
    np.testing.assert_allclose(turned, numbers, atol=1e-5)  # a full turn of the shoulder leads nowhere


def test_goals_of_the_arm_are_missed_by_who_does_nothing_and_often_at_random(arm: Arena) -> None:
    chosen = goals(arm, 12, 0)
    assert rate([trip(arm, goal, still, REACHER.steps) for goal in chosen]) == 0
    assert rate([trip(arm, goal, at_random(goal.start), REACHER.steps) for goal in chosen]) <= 0.6


def test_who_knows_the_angles_reaches_the_goals_of_the_arm(arm: Arena) -> None:
    chosen = goals(arm, 6, 0)
    trips = [trip(arm, goal, lambda robot, aim: aim.state - robot.state(), REACHER.steps) for goal in chosen]
    assert rate(trips) == 1


def test_some_goals_of_the_arm_are_reached_from_pixels() -> None:
    found = attempted("reacher", count=8)
    assert rate(found["planned"]) >= 0.75
    assert rate(found["planned"]) > rate(found["at random"])
    assert rate(found["still"]) == 0


@pytest.mark.slow
def test_forty_goals_of_the_arm_are_reached_from_pixels() -> None:
    found = attempted("reacher")
    assert rate(found["planned"]) >= 0.8
    assert rate(found["at random"]) <= 0.5
    assert rate(found["still"]) == 0
