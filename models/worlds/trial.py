"""Closed loops in a world: goals shown as pictures, actions from a planner, at random, or none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.worlds.arena import Arena, Floats, Picture


@dataclass(frozen=True, slots=True)
class Goal:
    """Where the robot begins is what `start` draws; where it is to go, and what the camera saw there."""

    start: int  # a seed
    state: Floats
    picture: Picture


@dataclass(frozen=True, slots=True)
class Trip:
    """One episode."""

    reached: bool
    steps: int
    first: float  # distances at its beginning and its end
    last: float


Chooser = Callable[[Arena, Goal], Floats]
"""What the robot sees of itself, and its goal → an action."""


def drawn(arena: Arena, seed: int) -> Iterator[Goal]:
    """Starts and goals without end, the same for the same seed; the robot is not at a goal when it begins."""
    for number in itertools.count(seed * 1_000_000):
        random = np.random.default_rng(number)
        arena.place(random)
        state, picture = arena.state(), arena.picture()
        arena.place(random)
        if arena.distance(state) > arena.near:
            yield Goal(number, state, picture)


def goals(arena: Arena, count: int, seed: int) -> list[Goal]:
    """The first of them."""
    return list(itertools.islice(drawn(arena, seed), count))


def begin(arena: Arena, goal: Goal) -> None:
    """Put the robot where the episode begins."""
    random = np.random.default_rng(goal.start)
    arena.place(random)
    arena.place(random)


def trip(arena: Arena, goal: Goal, choose: Chooser, steps: int) -> Trip:
    """Act until the goal is reached, or the steps are used up."""
    begin(arena, goal)
    first = last = arena.distance(goal.state)
    for step in range(1, steps + 1):
        arena.act(choose(arena, goal))
        last = arena.distance(goal.state)
        if last < arena.near:
            return Trip(True, step, first, last)
    return Trip(False, steps, first, last)


def at_random(seed: int) -> Chooser:
    """Any action within reach."""
    random = np.random.default_rng(seed)
    return lambda arena, _: random.uniform(-arena.reach, arena.reach, arena.size).astype(np.float32)


def still(arena: Arena, _: Goal) -> Floats:
    """Nothing."""
    return np.zeros(arena.size, np.float32)


def rate(trips: Sequence[Trip]) -> float:
    """Share of the goals that were reached."""
    return sum(trip.reached for trip in trips) / len(trips)


def told(name: str, trips: Sequence[Trip], unit: str) -> str:
    """A line about them."""
    reached = [trip for trip in trips if trip.reached]
    steps = f", {np.mean([trip.steps for trip in reached]):.1f} steps each" if reached else ""
    last = np.median([trip.last for trip in trips])
    return f"{name}: {len(reached)} of {len(trips)} goals ({rate(trips):.1%}){steps}; {last:.2f} {unit} off at the end"
