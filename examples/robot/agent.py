"""A robot in closed loop: it shows what its camera sees, gets a plan, acts its first action, and looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from examples.robot.session import LiveSession, Plan
from models.worlds.arena import Arena, Picture
from models.worlds.trial import Goal, Trip, begin, drawn


class Audience(Protocol):
    """Whoever looks on."""

    def tell(self, kind: str, *, picture: Picture | None = None, **fields: Any) -> None:
        """Something has happened."""
        ...


class Nobody:
    """Nobody looks on."""

    def tell(self, kind: str, *, picture: Picture | None = None, **fields: Any) -> None:
        """Nothing comes of it."""


NOBODY = Nobody()
Gate = Callable[[], Awaitable[bool]]
"""Waited for before every action; False: give the goal up."""


async def onward() -> bool:
    """A gate that is always open."""
    return True


async def drive(
    session: LiveSession, arena: Arena, goal: Goal, steps: int, *, gate: Gate = onward, audience: Audience = NOBODY
) -> Trip:
    """One episode. The robot is told nothing but its own state; it is the simulation that measures distances."""
    begin(arena, goal)
    await session.goal(f"goal {goal.start}", goal.picture)
    first = last = arena.distance(goal.state)
    picture = arena.picture()
    audience.tell("look", picture=picture, step=0, distance=last)
    for step in range(1, steps + 1):
        plan = await session.plan(picture, arena.state(), {"seed": goal.start + step})
        audience.tell("plan", chunk=plan.number, step=step, path=path(arena, plan), **told(plan))
        if not await gate():
            return Trip(False, step - 1, first, last)
        arena.act(plan.actions[0])
        last, picture = arena.distance(goal.state), arena.picture()
        audience.tell("look", picture=picture, step=step, distance=last)
        if last < arena.near:
            return Trip(True, step, first, last)
    return Trip(False, steps, first, last)


async def drive_all(session: LiveSession, arena: Arena, chosen: Sequence[Goal], steps: int) -> list[Trip]:
    """One episode after another."""
    return [await drive(session, arena, goal, steps) for goal in chosen]


def path(arena: Arena, plan: Plan) -> list[tuple[float, float]]:
    """Where a plan leads, in parts of the picture: the place now, and after every action."""
    state = arena.state()
    places = [arena.mark(state)]
    for action in plan.actions:
        state = state + action
        places.append(arena.mark(state))
    return places


def told(plan: Plan) -> Mapping[str, Any]:
    """A plan in plain numbers."""
    return {
        "energy": plan.energy,
        "iterations": plan.iterations,
        "took_ms": plan.took_ms,
        "age_ms": plan.age_ms,
        "actions": [[float(each) for each in row] for row in plan.actions],
    }


class Agent:
    """Goes from goal to goal while it is on; the audience is told of everything.

    `pause` seconds between a plan and its action, for the eye.
    """

    def __init__(self, arena: Arena, steps: int, audience: Audience, *, seed: int, pause: float) -> None:
        self._arena = arena
        self._steps = steps
        self._audience = audience
        self._goals = drawn(arena, seed)
        self._pause = pause
        self._on = False
        self._left = False
        self._turned = asyncio.Event()
        """One of the two has changed."""

    def go(self, *, on: bool) -> None:
        """Act, or hold."""
        self._on = on
        self._turned.set()
        self._audience.tell("running", on=on)

    def leave(self) -> None:
        """Give this goal up for another one."""
        self._left = True
        self._turned.set()

    async def run(self, session: LiveSession) -> None:
        """Until it is cancelled. Raises Lost, Refused."""
        while True:
            self._left = False
            goal = next(self._goals)
            self._audience.tell("goal", picture=goal.picture, number=goal.start, steps=self._steps)
            trip = await drive(session, self._arena, goal, self._steps, gate=self._gate, audience=self._audience)
            if not self._left:
                self._audience.tell("end", reached=trip.reached, steps=trip.steps, distance=trip.last)

    async def _gate(self) -> bool:
        await asyncio.sleep(self._pause)
        while not self._on and not self._left:
            self._turned.clear()
            await self._turned.wait()
        return not self._left
