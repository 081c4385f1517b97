from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from mstar.client import Session
from server.robot.core import Identity, RobotCore
from server.robot.live import Live, Robot
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
    assert parking.take("a") is one
    for token in ("a", "b"):
        with pytest.raises(Refusal) as wrong:
            parking.take(token)
        assert wrong.value.status == 404


class Held:
    """A connection that holds a session; `polite`: it ends when it is told to."""

    def __init__(self, parking: Parking, robot: Robot, *, polite: bool) -> None:
        self.told: list[str] = []
        self._parking, self._robot, self._polite = parking, robot, polite
        robot.free.clear()
        robot.live = cast("Live", self)

    def end(self, code: int, reason: str) -> None:
        self.told.append(f"end {code}")
        if self._polite:
            self.leave()

    def drop(self) -> None:
        self.told.append("drop")
        self.leave()

    def leave(self) -> None:
        assert self._robot.live is cast("Live", self)
        self._robot.live = None
        self._parking.park(self._robot)
        self._robot.free.set()


async def test_who_resumes_ends_the_connection_that_is_there_however_deaf_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.robot.parking.GOODBYE_SECONDS", 0.01)
    parking = Parking(2)
    one, _ = robot("a")
    parking.add(one)
    for polite, told in ((True, ["end 4001"]), (False, ["end 4001", "drop"])):
        held = Held(parking, one, polite=polite)
        await parking.vacate("a")
        assert held.told == told
        assert parking.take("a") is one


async def test_of_many_that_resume_at_once_the_last_has_the_session() -> None:
    parking = Parking(2)
    one, _ = robot("a")
    parking.add(one)
    first = Held(parking, one, polite=False)
    held: list[Held] = []

    async def resume() -> None:
        await parking.vacate("a")
        assert parking.take("a") is one
        held.append(Held(parking, one, polite=True))

    several = [asyncio.create_task(resume()) for _ in range(3)]
    await asyncio.sleep(0)
    first.leave()
    await asyncio.gather(*several)
    assert [each.told for each in held] == [["end 4001"], ["end 4001"], []]


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
        parking.take("a")
    assert parking.take("b") is two
