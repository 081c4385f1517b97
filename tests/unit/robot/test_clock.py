from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.robot.clock import Acting, RobotClock, place


@given(st.floats(-3600, 3600), st.integers(0, 2**32))
def test_the_offset_is_known_to_half_the_quickest_round_trip(offset: float, seed: int) -> None:
    chance = random.Random(seed)
    clock = RobotClock()
    now, quickest = 0.0, 9.0
    for _ in range(8):
        there, back = chance.uniform(0.001, 0.2), chance.uniform(0.001, 0.2)
        clock.ponged(now, now + there + offset, now + there + back)
        quickest = min(quickest, there + back)
        now += 2
    found = clock.robot(now)
    assert found is not None
    assert abs(found - (now + offset)) <= quickest / 2 + 1e-6


def test_frames_bound_the_offset_until_a_ping_is_back() -> None:
    clock = RobotClock()
    assert clock.robot(0.0) is None
    for transit in (0.05, 0.02, 0.09):
        clock.arrived(500.0, 100.0 + transit)
    assert clock.robot(100.0) == pytest.approx(499.98)
    clock.ponged(100.0, 500.01, 100.02)
    assert clock.robot(100.0) == pytest.approx(500.0)


def test_old_pings_are_forgotten() -> None:
    clock = RobotClock()
    clock.ponged(0.0, 10.0, 0.0)
    for second in range(1, 17):
        clock.ponged(second, second + 11.0, second + 0.1)
    found = clock.robot(20.0)
    assert found == pytest.approx(30.95)


@pytest.mark.parametrize("leap", [-3600.0, 3600.0, -0.5])
def test_a_clock_that_was_set_is_believed_at_once(leap: float) -> None:
    clock = RobotClock()
    assert not any(clock.ponged(second, second + 10.0, second + 0.02) for second in range(8))
    assert clock.ponged(8.0, 18.0 + leap, 8.3)
    assert clock.robot(20.0) == pytest.approx(30.0 + leap, abs=0.2)
    assert not clock.ponged(9.0, 19.15 + leap, 9.3)


@given(st.floats(0, 100), st.floats(0, 5), st.floats(0.01, 1), st.integers(1, 50))
def test_rows_that_are_over_are_never_first(seen: float, age: float, dt: float, rows: int) -> None:
    acting = Acting(seen, 1000.0, np.zeros((rows, 1)))
    at = place(acting, seen, seen + age, dt, standing=False)
    assert at.start == seen
    assert at.first * dt >= age - 1e-6
    assert at.first == 0 or (at.first - 1) * dt < age + 1e-6


@given(st.floats(0, 5), st.floats(0, 5), st.floats(0.01, 1))
def test_what_was_acted_before_the_robot_stood_is_over_and_the_next_row_is_for_now(
    acts: float, stands: float, dt: float
) -> None:
    acting = Acting(0.0, acts, np.zeros((1, 1)))
    at = place(acting, 0.0, acts + stands, dt, standing=False)
    assert at.start + at.first * dt == pytest.approx(acts + stands)
    assert at.first * dt >= acts - 1e-6
    assert at.first == 0 or (at.first - 1) * dt < acts + 1e-6


def test_a_robot_that_has_not_moved_begins_with_the_first_row() -> None:
    ended = Acting(0.0, 0.1, np.zeros((5, 1)))
    for acting, standing in ((None, False), (ended, False), (Acting(0.0, 9.0, np.zeros((5, 1))), True)):
        at = place(acting, 2.0, 2.7, 0.1, standing=standing)
        assert (at.start, at.first) == (2.7, 0)


def test_the_rest_of_a_chunk_begins_at_the_row_of_the_time() -> None:
    acting = Acting(10.0, 0.1, np.arange(5.0)[:, None])
    assert acting.end == pytest.approx(10.5)
    assert acting.rest(10.2)[:, 0].tolist() == [2, 3, 4]
    assert len(acting.rest(10.6)) == 0
    assert len(acting.rest(9.0)) == 0
