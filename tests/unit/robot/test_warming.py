"""Families for robots answer once before anybody is let in."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from models.pi05.observation import parse
from models.pi05.robots import ROBOTS
from models.registry import Card
from mstar.client import Client, Emission, RequestEnded
from mstar.tensors import Value
from server.door import Server
from server.limits import Admission
from server.robot.warming import nothing, warm
from server.security import Keys
from server.settings import Settings
from tests.unit.robot.robots import PLANNER, POLICY


@dataclass
class Runtime:
    """A client of the runtime, its session and its request: says that all ends as `status`."""

    status: str = "done"
    asked: list[tuple[str, Mapping[str, Value], Mapping[str, Value]]] = field(default_factory=list)
    closed: int = 0

    async def open(self, family: str) -> Runtime:
        self._family = family
        return self

    def start(self, task: str, inputs: Mapping[str, Value], settings: Mapping[str, Value], _: object) -> Runtime:
        self.asked.append((f"{self._family} {task}", inputs, settings))
        return self

    async def __aiter__(self) -> AsyncIterator[Emission | RequestEnded]:
        yield RequestEnded("r", self.status, cause="no weights")

    def interrupt(self) -> None:
        pass

    async def close(self) -> None:
        self.closed += 1


def server(runtime: Runtime, **cards: Card) -> Server:
    return Server(Settings(("m",)), cast("Client", runtime), cards, Keys(()), Admission(1))


async def test_every_family_that_wants_it_is_asked_once() -> None:
    runtime = Runtime()
    a, b = (
        Card("a", policy=replace(POLICY, warm={})),
        Card("b", planner=replace(PLANNER, warm=FEW, settings=tuple(FEW))),
    )
    await warm(server(runtime, a=a, b=b, c=Card("c", policy=POLICY), d=Card("d")))
    assert [(task, settings) for task, _, settings in runtime.asked] == [("a act", {}), ("b plan_image", FEW)]
    assert runtime.closed == 2


FEW: dict[str, Any] = {"iterations": 1}


async def test_who_fails_is_served_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    runtime = Runtime("failed")
    with caplog.at_level(logging.WARNING):
        await warm(server(runtime, a=Card("a", policy=replace(POLICY, warm={}))))
    assert "a: its first request has failed: no weights" in caplog.text
    assert runtime.closed == 1


@pytest.mark.parametrize("name", sorted(ROBOTS))
def test_robots_of_every_kind_can_be_shown_nothing(name: str) -> None:
    robot = ROBOTS[name]
    offer = replace(POLICY, cameras=tuple(robot.cameras.values()), state=dict(robot.state))
    found = parse(nothing(offer), robot, horizon=10, action_dim=32)
    assert set(found.images) == set(robot.cameras)
