"""A core with a clock that the test turns, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from models.registry import Planner, Policy
from server.robot.commands import Begin, Command, Count, Send
from server.robot.core import Identity, RobotCore
from server.robot.events import Ask, ClientEvent, Ping, Pong, SessionUpdate, State
from server.robot.events import Fields as Session
from server.robot.frames import Encoding, Frame, Kind, Shot
from server.robot.offers import Offer

POLICY = Policy(
    horizon=10,
    action_dim=2,
    cameras=(("images", "left"), ("images", "right")),
    state={("state",): 3},
    side=8,
    rate=10.0,
    blends=True,
)
PLANNER = Planner(horizon=2, action_dim=7, state_dim=7, side=8, rate=4.0, iterations=3)
AHEAD = 1000.0
"""How far the robot's clock is ahead of the server's."""

E = TypeVar("E")


def shot(value: int = 0) -> Shot:
    return Shot(Encoding.RGB, 2, 2, bytes([value] * 12))


class Bench:
    """`now` is the server's time; the robot's is `AHEAD` of it. Pings come back after `transit` seconds."""

    def __init__(self, offer: Offer = POLICY, *, pings: bool = True, **session: Any) -> None:
        self.now = 0.0
        self.core = RobotCore(offer, Identity("robot_1", "m", "token", 3600.0), self.now)
        self.said: list[Any] = []
        self.begun: list[Begin] = []
        self.commands: list[Command] = []
        self.ahead = AHEAD
        self.counts: dict[tuple[str, str], int] = {}
        self._pings = pings
        self._seq = 0
        self.take(self.core.attach(self.now))
        if session:
            self.client(SessionUpdate(Session(**session)))

    def take(self, commands: list[Command]) -> None:
        self.commands += commands
        for command in commands:
            match command:
                case Send(event=Ping(id=number)) if self._pings:
                    self.client(Pong(number, self.robot))
                case Send(event=event):
                    self.said.append(event)
                case Begin():
                    self.begun.append(command)
                case Count(of=of, how=how):
                    self.counts[(of, how)] = self.counts.get((of, how), 0) + 1
                case _:
                    pass

    @property
    def robot(self) -> float:
        return self.now + self.ahead

    transit = 0.1
    """Round trip of `pong`."""

    def pong(self, wall: float | None = None) -> None:
        """Answer the newest ping, which left half the transit ago."""
        number = [
            command.event.id
            for command in self.commands
            if isinstance(command, Send) and isinstance(command.event, Ping)
        ][-1]
        self.now += self.transit
        self.client(Pong(number, self.robot - self.transit / 2, wall))

    def client(self, event: ClientEvent) -> None:
        self.take(self.core.client(event, self.now))

    def pass_time(self, seconds: float) -> None:
        """Time goes on; the core is woken whenever it wants to be."""
        until = self.now + seconds
        while (at := self.core.next()) <= until:
            self.now = max(self.now, at)
            self.take(self.core.tick(self.now))
        self.now = until

    def frame(self, name: str = "images/left", *, seq: int | None = None, age: float = 0.0) -> Frame:
        self._seq += 1
        frame = Frame(Kind.CAMERA, name, self._seq if seq is None else seq, self.robot - age, shot())
        self.take(self.core.frame(frame, self.now))
        return frame

    def state(self, values: list[float] | dict[str, list[float]]) -> None:
        self.client(State(self.robot, values))

    def ready(self) -> Frame:
        """All that a chunk needs."""
        self.state([0.0] * (3 if self.core.offer is POLICY else 7))
        if self.core.offer is PLANNER:
            self.take(self.core.frame(Frame(Kind.GOAL, "home", 0, 0.0, shot(9)), self.now))
            return self.frame("camera")
        return self.frame()

    def ask(self, **given: Any) -> None:
        self.client(Ask(**given))

    def answer(self, rows: int = 10, **value: Any) -> None:
        """The model is done with what was begun last."""
        actions = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
        told: Mapping[str, Any] = {"actions": actions, **value}
        self.take(self.core.answered(self.begun[-1].key, told, self.now))

    def last(self, kind: type[E]) -> E:
        return self.all(kind)[-1]

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.said if isinstance(event, kind)]
