"""What a policy accepts, what it comes down to, how it is told."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from mstar.errors import GraphError
from mstar.streaming.policies import (
    ChunkPolicy,
    ContinueChunkPolicy,
    DeadlineChunkPolicy,
    FixedChunkPolicy,
    LatestChunkPolicy,
    LeftContextChunkPolicy,
    RampChunkPolicy,
    SlidingWindowChunkPolicy,
    describe,
    rule,
)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FixedChunkPolicy(0), "k is 0"),
        (lambda: SlidingWindowChunkPolicy(2, 3), "loses items"),
        (lambda: SlidingWindowChunkPolicy(2, 0), "s is 0"),
        (lambda: LeftContextChunkPolicy(2, 4), "a context of 4 is longer than the chunk of 2"),
        (lambda: LeftContextChunkPolicy(2, -1), "c is -1"),
        (lambda: RampChunkPolicy(0, 2, 4), "first is 0"),
        (lambda: RampChunkPolicy(5, 2, 4), "k is 4, must be at least 5"),
        (lambda: RampChunkPolicy(1, 1 + 2**-52, 9), r"growth is 1.0*2, must be 1, or at least 1\.01"),
        (lambda: RampChunkPolicy(1, math.nan, 9), "growth is nan"),
        (lambda: DeadlineChunkPolicy(FixedChunkPolicy(1), math.nan), "ms is nan"),
        (lambda: RampChunkPolicy(1, 0.5, 4), "growth is 0.5"),
        (lambda: DeadlineChunkPolicy(FixedChunkPolicy(1), -1), "ms is -1"),
        (lambda: DeadlineChunkPolicy(ContinueChunkPolicy(LatestChunkPolicy()), 5), "never makes an item wait"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(make: Callable[[], ChunkPolicy], says: str) -> None:
    with pytest.raises(GraphError, match=says):
        make()


@pytest.mark.parametrize(
    ("ramp", "sizes"),
    [
        (RampChunkPolicy(2, 2, 16), (2, 4, 8, 16)),
        (RampChunkPolicy(3, 1.5, 10), (3, 4, 7, 10)),
        (RampChunkPolicy(5, 1, 9), (5,)),
        (RampChunkPolicy(4, 3, 4), (4,)),
    ],
)
def test_a_ramp_has_these_steps(ramp: RampChunkPolicy, sizes: tuple[int, ...]) -> None:
    assert rule(ramp).sizes == sizes


def test_wrappers_compose() -> None:
    inner = LeftContextChunkPolicy(4, 2)
    both = rule(ContinueChunkPolicy(DeadlineChunkPolicy(DeadlineChunkPolicy(inner, 50), 20)))
    assert (both.sizes, both.context, both.continues, both.wait_ms) == ((4,), 2, True, 20)
    assert both == rule(DeadlineChunkPolicy(ContinueChunkPolicy(DeadlineChunkPolicy(inner, 20)), 50))


def test_every_policy_is_told_in_plain_json() -> None:
    policy = DeadlineChunkPolicy(ContinueChunkPolicy(RampChunkPolicy(1, 1.5, 9, 2)), 40)
    assert json.loads(json.dumps(describe(policy))) == {
        "policy": "deadline",
        "ms": 40,
        "inner": {"policy": "continue", "inner": {"policy": "ramp", "first": 1, "growth": 1.5, "k": 9, "c": 2}},
    }
    told = [
        describe(FixedChunkPolicy(3)),
        describe(SlidingWindowChunkPolicy(4, 1)),
        describe(LeftContextChunkPolicy(4, 2)),
        describe(LatestChunkPolicy()),
    ]
    assert told == [
        {"policy": "fixed", "k": 3},
        {"policy": "sliding_window", "w": 4, "s": 1},
        {"policy": "left_context", "k": 4, "c": 2},
        {"policy": "latest"},
    ]
