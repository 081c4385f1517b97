"""Planning by the cross-entropy method, as V-JEPA 2-AC does it (Assran et al. 2025, section 4; numpy only).

A belief is a normal distribution over the sampled dimensions of the actions of each step. One iteration draws candidate
plans, has a world model imagine and score them, and moves the belief towards the best. The belief's mean is a valid
plan after every iteration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import numpy as np

from models.vjepa2.motion import Floats
from mstar.errors import Rejected
from mstar.tensors import Value

GRIPPER_LIMIT = 0.75
GRIPPER_SNAP = 0.25
"""A planned gripper change below this is none."""
FARTHEST = 1e6
"""An action's largest number: beyond, single precision has no room for what is computed with it."""

Objective = Literal["last", "mean"]


@dataclass(frozen=True, slots=True)
class Planner:
    """Parameters of a plan; a request's settings of the same names override a checkpoint's.

    `objective`: `last` scores the last imagined frame (the published method), `mean` all of them. With `last` and a
    horizon beyond what the goal needs, the first action alone leads nowhere in particular: execute the whole plan, or
    score the mean.
    """

    horizon: int = 2  # actions of a plan
    samples: int = 400
    iterations: int = 10
    topk: int = 10
    maxnorm: float = 0.05  # of every sampled dimension but the gripper: limit, and first standard deviation
    momentum_mean: float = 0.15
    momentum_std: float = 0.15
    momentum_mean_gripper: float = 0.15
    momentum_std_gripper: float = 0.15
    objective: Objective = "last"
    deadline_ms: float | None = None  # from the moment the observation was taken up
    axis: Mapping[int, float] = field(default_factory=dict)  # sampled dimension → its value in all candidates
    close_gripper: int | None = None  # the gripper closes from this step on

    def with_settings(self, settings: Mapping[str, Value]) -> Planner:
        """Raises Rejected, naming the setting."""
        given = {name: settings[name] for name in _KINDS if settings.get(name) is not None}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, _KINDS[name]):
                raise Rejected(f"{name} is {value!r:.200}", param=name)
        asked: dict[str, object] = dict(given)
        if "axis" in given:
            asked["axis"] = _axis(given["axis"])
        planner = replace(self, **asked)  # type: ignore[arg-type]  # checked above
        planner.check()
        return planner

    def check(self) -> None:
        """Raises Rejected for numbers that make no plan."""
        for name in ("horizon", "samples", "iterations"):
            if getattr(self, name) < 1:
                raise Rejected(f"{name} is {getattr(self, name)}, must be at least 1", param=name)
        if not 2 <= self.topk <= self.samples:
            raise Rejected(f"topk is {self.topk}, must be from 2 to the {self.samples} samples", param="topk")
        if not 0 < self.maxnorm <= FARTHEST:
            text = f"maxnorm is {self.maxnorm}, must be above 0 and at most {FARTHEST:g}"
            raise Rejected(text, param="maxnorm")
        if self.deadline_ms is not None and not math.isfinite(self.deadline_ms):
            raise Rejected(f"deadline_ms is {self.deadline_ms}, must be finite", param="deadline_ms")
        for name in (each.name for each in fields(self) if each.name.startswith("momentum")):
            if not 0 <= getattr(self, name) <= 1:
                raise Rejected(f"{name} is {getattr(self, name)}, must be from 0 to 1", param=name)
        if self.objective not in {"last", "mean"}:
            raise Rejected(f"objective is {self.objective!r}, known: last, mean", param="objective")


_NUMBER = (int, float)
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("horizon", "samples", "iterations", "topk", "close_gripper"), int),
    **{each.name: _NUMBER for each in fields(Planner) if each.name.startswith("momentum")},
    "maxnorm": _NUMBER,
    "deadline_ms": _NUMBER,
    "objective": str,
    "axis": Mapping,
}
SETTINGS = (*_KINDS, "noise")
"""What a request may set, beside its seed."""


def _axis(given: Value) -> Mapping[int, float]:
    assert isinstance(given, Mapping)
    wrong = Rejected(f"axis is {given!r:.200}, expected the number of a dimension → its value", param="axis")
    try:
        found = {int(name): float(value) for name, value in given.items()}  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise wrong from None
    if not all(abs(value) <= FARTHEST for value in found.values()):
        raise wrong
    return found


@dataclass(frozen=True, slots=True)
class Sampled:
    """Which dimensions of an action are drawn, in their order; all others are 0."""

    size: int  # dimensions of an action
    dims: tuple[int, ...]
    gripper: bool  # the last drawn dimension is a gripper

    def expand(self, drawn: Floats) -> Floats:
        """[..., drawn dimensions] → actions [..., size]."""
        actions = np.zeros((*drawn.shape[:-1], self.size), np.float32)
        actions[..., self.dims] = drawn
        return actions

    def per_dim(self, move: float, gripper: float) -> Floats:
        """[drawn dimensions]: one number for the gripper, the other for all others."""
        numbers = np.full(len(self.dims), move, np.float32)
        if self.gripper:
            numbers[-1] = gripper
        return numbers


POSE = Sampled(7, (0, 1, 2, 6), gripper=True)
"""Positions and gripper; no turning."""


def sampled(motion: str, size: int) -> Sampled:
    """The sampled dimensions of a world model's actions."""
    return POSE if motion == "pose" else Sampled(size, tuple(range(size)), gripper=False)


@dataclass(frozen=True, slots=True)
class Belief:
    """mean, std [horizon, drawn dimensions]."""

    mean: Floats
    std: Floats


def first_belief(planner: Planner, space: Sampled) -> Belief:
    """Nothing moves, give or take what may."""
    std = np.tile(space.per_dim(planner.maxnorm, 1.0), (planner.horizon, 1))
    return Belief(np.zeros_like(std), std)


def draw(planner: Planner, space: Sampled, belief: Belief, noise: Floats) -> Floats:
    """noise [horizon, samples, drawn dimensions], standard normal → candidates [samples, horizon, action]."""
    limit = space.per_dim(planner.maxnorm, GRIPPER_LIMIT)
    drawn = np.clip(noise * belief.std[:, None] + belief.mean[:, None], -limit, limit).astype(np.float32)
    for dim, value in planner.axis.items():
        if not 0 <= dim < len(space.dims):
            raise Rejected(f"axis {dim}: only {len(space.dims)} dimensions are sampled", param="axis")
        drawn[..., dim] = value
    if planner.close_gripper is not None and space.gripper:
        drawn[planner.close_gripper :, :, -1] = 1.0
    return space.expand(drawn.transpose(1, 0, 2))


def refit(
    planner: Planner, space: Sampled, belief: Belief, candidates: Floats, energies: Floats
) -> tuple[Belief, float]:
    """The belief after seeing the energies [samples] of the candidates, and the mean energy of the best `topk`."""
    best = np.argsort(energies, kind="stable")[: planner.topk]
    elite = candidates[best][..., space.dims]  # [topk, horizon, drawn]
    keep_mean = space.per_dim(planner.momentum_mean, planner.momentum_mean_gripper)
    keep_std = space.per_dim(planner.momentum_std, planner.momentum_std_gripper)
    mean = elite.mean(axis=0) * (1 - keep_mean) + belief.mean * keep_mean
    std = elite.std(axis=0, ddof=1) * (1 - keep_std) + belief.std * keep_std
    return Belief(mean.astype(np.float32), std.astype(np.float32)), float(energies[best].mean())


def plan_of(space: Sampled, belief: Belief) -> Floats:
    """The belief's mean as actions [horizon, action]; a gripper that hardly moves does not."""
    mean = belief.mean.copy()
    if space.gripper:
        mean[np.abs(mean[:, -1]) < GRIPPER_SNAP, -1] = 0.0
    return space.expand(mean)


def energies_of(objective: str, frames: Sequence[Floats]) -> Floats:
    """Per imagined frame the energies [samples] → one energy a candidate."""
    stacked = np.stack(frames)
    return np.asarray(stacked.mean(axis=0) if objective == "mean" else stacked[-1], np.float32)
