"""A robot in closed loop over the live session of a running server: from a camera's pictures to a goal's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

from examples.robot.agent import drive_all, path
from examples.robot.session import Imagined, Refused, live_session
from models.worlds.arena import Arena
from models.worlds.recipe import ROOM
from models.worlds.trial import Goal, at_random, begin, goals, rate, still, told, trip
from tests.clients.conftest import Serving, serving
from tests.clients.robot_rtc import CameraTrack, RtcRobot, robot
from tests.clients.test_robot_rtc import raw

SEED, GOALS = 1, 8


@pytest.fixture(scope="module")
def room() -> Iterator[Serving]:
    yield from serving("vjepa2", "--set", "vjepa2.world=room")


async def driven(server: Serving, seed: int, count: int = GOALS) -> float:
    """Rate of some goals, with a camera and a session of its own."""
    arena = ROOM.arena()
    async with live_session(server.url) as session:
        assert session.offer["image_resolution"] == [64, 64]
        trips = await drive_all(session, arena, goals(arena, count, seed), ROOM.steps)
    print(told(f"room over the live session, goals of seed {seed}", trips, arena.unit))
    return rate(trips)


async def test_a_robot_reaches_its_goals_over_the_live_session(room: Serving) -> None:
    arena = ROOM.arena()
    chosen = goals(arena, GOALS, SEED)
    assert await driven(room, SEED) == 1
    assert rate([trip(arena, goal, at_random(goal.start), ROOM.steps) for goal in chosen]) <= 0.25
    assert rate([trip(arena, goal, still, ROOM.steps) for goal in chosen]) == 0


async def test_two_robots_at_once_each_reach_their_own(room: Serving) -> None:
    assert tuple(await asyncio.gather(driven(room, 2, 3), driven(room, 3, 3))) == (1, 1)


async def test_the_plan_is_told_with_its_energy_and_leads_towards_the_goal(room: Serving) -> None:
    arena = ROOM.arena()
    [goal] = goals(arena, 1, 4)
    async with live_session(room.url) as session:
        picture, state = arena.picture(), arena.state()
        with pytest.raises(Refused, match="a goal"):
            await session.plan(picture, state, {})
        await session.goal("there", goal.picture)
        plan = await session.plan(picture, state, {"seed": 1})
        there = await session.plan(goal.picture, goal.state, {"seed": 1})
    assert plan.actions.shape == (ROOM.config.planner.horizon, arena.size)
    assert plan.iterations == ROOM.config.planner.iterations
    assert plan.energy > there.energy > 0
    places = np.array(path(arena, plan))
    wanted = np.array(arena.mark(goal.state))
    assert np.linalg.norm(places[-1] - wanted) < np.linalg.norm(places[0] - wanted)


async def test_what_is_imagined_is_what_the_camera_then_sees(room: Serving) -> None:
    arena = ROOM.arena()
    [goal] = goals(arena, 1, 5)
    seen: asyncio.Queue[Imagined] = asyncio.Queue()
    async with live_session(room.url, imagined=seen.put_nowait) as session:
        begin(arena, goal)
        await session.goal("there", goal.picture)
        before = arena.picture()
        plan = await session.plan(before, arena.state(), {"seed": 1})
        frames = [await asyncio.wait_for(seen.get(), 60) for _ in plan.actions]
    for number, (frame, action) in enumerate(zip(frames, plan.actions, strict=True), 1):
        assert (frame.chunk, frame.actions) == (plan.number, number)
        arena.act(action)
        assert apart(frame.picture, arena.picture()) < 0.5 * apart(before, arena.picture())


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Mean difference of two pictures."""
    return float(np.abs(one.astype(float) - other).mean())


async def test_over_webrtc_goals_are_reached_from_a_compressed_video(room: Serving) -> None:
    arena = ROOM.arena()
    for goal in goals(arena, 2, 6):
        begin(arena, goal)
        async with robot(room, [CameraTrack(lambda _: arena.picture())], watching=True, model="vjepa2") as client:
            client.goal("there", raw(goal.picture))
            await moved(client, arena, goal, settled=0.0)
            await client.pictures(1)
            assert client.shown[0].shape == goal.picture.shape


async def moved(client: RtcRobot, arena: Arena, goal: Goal, settled: float) -> None:
    """Act until the goal is reached, each time on a picture that was taken after the robot stood still."""
    for _ in range(ROOM.steps):
        client.state(*map(float, arena.state()))
        chunk = await client.chunk(standing=True, settings={"seed": 1})
        while chunk["t_capture"]["camera"] < settled:
            chunk = await client.chunk(standing=True, settings={"seed": 1})
        arena.act(np.array(chunk["actions"][0], np.float32))
        settled = client.now + 0.1  # a report may date a picture by when it was sent
        if arena.distance(goal.state) < arena.near:
            return
    pytest.fail("the goal was not reached")
