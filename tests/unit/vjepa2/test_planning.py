"""The cross-entropy method by itself, and its nodes on a clock turned by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from models.vjepa2.nodes.planning import improve
from models.vjepa2.planning import POSE, Planner, draw, energies_of, first_belief, plan_of, refit, sampled
from mstar.errors import Rejected
from mstar.submodule import Call, Step
from mstar.tensors import Value

TINY: Mapping[str, Value] = {"tiny": 1}
NO_NUMBERS = (float("nan"), float("inf"), 1e300)
"""Numbers of which nothing can be computed."""


def plan_for(target: np.ndarray, planner: Planner, motion: str = "add", size: int = 2) -> np.ndarray:
    """Plans towards a sum of actions in a world that can be looked into."""
    space = sampled(motion, size)
    belief = first_belief(planner, space)
    random = np.random.default_rng(3)
    for _ in range(planner.iterations):
        noise = random.standard_normal((planner.horizon, planner.samples, len(space.dims)), np.float32)
        moves = draw(planner, space, belief, noise)
        path = moves.cumsum(axis=1)
        frames = [np.abs(path[:, h] - target).mean(axis=1) for h in range(planner.horizon)]
        belief, _ = refit(planner, space, belief, moves, energies_of(planner.objective, frames))
    return plan_of(space, belief)


def test_it_finds_what_can_be_reached() -> None:
    planner = Planner(horizon=2, samples=128, iterations=12, topk=10, maxnorm=0.3)
    np.testing.assert_allclose(plan_for(np.array([0.4, -0.1]), planner).sum(axis=0), [0.4, -0.1], atol=0.02)


def test_scoring_every_frame_goes_there_at_once() -> None:
    """The last frame alone does not say with which action to go."""
    target = np.array([0.2, -0.2])
    planner = Planner(horizon=3, samples=128, iterations=12, topk=10, maxnorm=0.3, objective="mean")
    plan = plan_for(target, planner)
    np.testing.assert_allclose(plan[0], target, atol=0.03)
    np.testing.assert_allclose(plan[1:], 0, atol=0.04)


def test_candidates_keep_their_limits_and_do_not_turn() -> None:
    planner = Planner(samples=300, maxnorm=0.05)
    noise = np.random.default_rng(0).standard_normal((2, 300, 4), np.float32) * 9
    moves = draw(planner, POSE, first_belief(planner, POSE), noise)
    assert moves.shape == (300, 2, 7)
    assert np.abs(moves[..., :3]).max() == np.float32(0.05)
    assert np.abs(moves[..., 6]).max() == np.float32(0.75)
    assert not moves[..., 3:6].any()


def test_a_gripper_that_hardly_moves_does_not() -> None:
    belief = first_belief(Planner(horizon=3), POSE)
    belief.mean[:, -1] = (0.24, -0.26, -0.1)
    np.testing.assert_array_equal(plan_of(POSE, belief)[:, 6], np.array([0, -0.26, 0], np.float32))


def test_the_momenta_of_the_gripper_are_its_own() -> None:
    planner = Planner(
        horizon=1, samples=3, topk=2, momentum_mean=0.5, momentum_std=0, momentum_mean_gripper=0, momentum_std_gripper=1
    )
    moves = np.zeros((3, 1, 7), np.float32)
    moves[:, 0, 0], moves[:, 0, 6] = (0.02, 0.04, 0.9), (0.2, 0.4, 0.9)
    belief, energy = refit(planner, POSE, first_belief(planner, POSE), moves, np.array([1.0, 2.0, 3.0], np.float32))
    np.testing.assert_allclose(belief.mean[0], [0.015, 0, 0, 0.3], atol=1e-7)
    np.testing.assert_allclose(belief.std[0], [0.02 / 2**0.5, 0, 0, 1.0], atol=1e-7)
    assert energy == 1.5


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"samples": 0}, "samples"),
        ({"samples": True}, "samples"),
        ({"iterations": 0}, "iterations"),
        ({"topk": 500}, "topk"),
        ({"horizon": 2.5}, "horizon"),
        ({"maxnorm": 0}, "maxnorm"),
        *(({"maxnorm": value}, "maxnorm") for value in NO_NUMBERS),
        *(({"axis": {"0": value}}, "axis") for value in NO_NUMBERS),
        *(({"momentum_mean": value}, "momentum_mean") for value in NO_NUMBERS),
        *(({"deadline_ms": value}, "deadline_ms") for value in NO_NUMBERS[:2]),
        ({"momentum_std": -0.1}, "momentum_std"),
        ({"objective": "first"}, "objective"),
        ({"axis": {"x": 1}}, "axis"),
        ({"deadline_ms": "soon"}, "deadline_ms"),
    ],
)
def test_settings_are_checked_by_name(settings: dict[str, Value], named: str) -> None:
    with pytest.raises(Rejected, match=named) as refused:
        Planner().with_settings(settings)
    assert refused.value.param == named


def test_settings_of_other_things_are_left_alone() -> None:
    assert Planner(samples=30).with_settings({"seed": 3, "voice": "x", "topk": 7}) == Planner(samples=30, topk=7)


@pytest.mark.parametrize(
    ("deadline", "iterations"),
    [(None, 10), (5000.0, 10), (950.0, 8), (550.0, 4), (549.0, 3), (100.0, 1), (0.0, 1)],
)
def test_the_last_iteration_is_the_one_after_which_another_would_end_too_late(
    deadline: float | None, iterations: int
) -> None:
    """150 ms for the picture and the goal, then 100 ms an iteration."""
    now = 0.15
    node = improve(TINY, clock=lambda: now)
    settings: dict[str, Value] = {"iterations": 10, "samples": 6, "topk": 2, "deadline_ms": deadline}
    first = first_belief(Planner(), POSE)
    plan: Mapping[str, object] = {}
    belief: Mapping[str, Value] = {
        "mean": first.mean,
        "std": first.std,
        "iteration": 0,
        "observation": 7,
        "began": 0.0,
        "started": 0.15,
    }
    moves = np.random.default_rng(1).normal(0, 0.02, (6, 2, 7)).astype(np.float32)
    energies: Value = [np.arange(6, dtype=np.float32)] * 2
    for done in range(1, 11):
        now = 0.15 + 0.1 * done - 1e-9 * done
        call = Call("s.0", "plan", {"belief": belief, "moves": moves, "energies": energies}, settings)
        outputs = {name: values[0] for name, values in node.forward(node.collate([call]), Step([call])).items()}
        found, after = outputs["plan"], outputs["belief"]
        assert isinstance(found, Mapping)
        assert isinstance(after, Mapping)
        plan, belief = found, after
        assert plan["final"] == node.verdict(call, outputs)
        assert (plan["iteration"], plan["observation"]) == (done, 7)
        if plan["final"]:
            break
    assert plan["iteration"] == iterations
    assert plan["deadline_hit"] == (iterations < 10)
