from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from mstar.client import Session
from server.robot.core import Identity, RobotCore
from server.robot.live import Robot
from server.robot.parking import Parking
from server.security import Refusal
from tests.unit.robot.robots import POLICY


@dataclass
class Closable:
    """Stands for the runtime's session."""

    closed: list[bool] = field(default_factory=list)

    async def close(self) -> None:
        self.closed.append(True)


def robot(token: str) -> tuple[Robot, Closable]:
    runtime = Closable()
    return Robot(RobotCore(POLICY, Identity("r", "m", token, 9.0), 0.0), cast("Session", runtime)), runtime


async def test_a_token_opens_its_session_once_while_nobody_is_connected() -> None:
    parking = Parking(2)
    one, _ = robot("a")
    parking.add(one)
    parking.park(one)
    assert await parking.take("a") is one
    for token in ("a", "b"):
        with pytest.raises(Refusal) as wrong:
            await parking.take(token)
        assert wrong.value.status == 404


async def test_the_one_that_waited_longest_makes_room() -> None:
    parking = Parking(2)
    robots = [robot(token) for token in "abc"]
    for each, _ in robots:
        parking.add(each)
        parking.park(each)
    await parking.clear()
    assert [runtime.closed for _, runtime in robots] == [[True]] * 3
    assert len(parking) == 0


async def test_room_is_made_at_once() -> None:
    parking = Parking(1)
    (one, first), (two, second) = robot("a"), robot("b")
    for each in (one, two):
        parking.add(each)
        parking.park(each)
    await asyncio.sleep(0)
    assert (first.closed, second.closed) == ([True], [])
    with pytest.raises(Refusal):
        await parking.take("a")
    assert await parking.take("b") is two
