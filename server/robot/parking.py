"""Live sessions whose connection was lost: kept for a while, for whoever brings their token."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from aiohttp import web

from server.door import Server
from server.limits import Account, Seat
from server.realtime import new_id
from server.robot.core import Identity, RobotCore
from server.robot.live import TAKEN_OVER, Live, Robot
from server.robot.offers import Offer
from server.security import Refusal
from server.sessions import GOODBYE_SECONDS, admitted, opened

RESUME_SECONDS = 30.0
"""How long a session waits for its robot."""
TAKEOVER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Parked:
    timer: asyncio.TimerHandle


class Parking:
    """All live sessions by their token, with or without a connection; at most `most` of them without."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._robots: dict[str, Robot] = {}
        self._parked: dict[str, _Parked] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._parked)

    def add(self, robot: Robot) -> None:
        self._robots[robot.core.identity.resume] = robot

    def find(self, name: str) -> Robot:
        """The session of that id. Raises Refusal(404)."""
        for robot in self._robots.values():
            if robot.core.identity.id == name:
                return robot
        raise Refusal(404, "session_not_found", "There is no such session.", "session")

    async def vacate(self, token: str) -> None:
        """End the connection that holds the session of that token, if one does. Raises Refusal(404, 409).

        One that the robot has given up may look alive from here, and holds the place that the next one needs.
        """
        robot = self.known(token)
        while (live := robot.live) is not None:
            live.end(TAKEN_OVER, "the session was resumed over another connection")
            if await _left(robot, live, GOODBYE_SECONDS):
                continue
            live.drop()  # it does not take its last words
            if not await _left(robot, live, TAKEOVER_SECONDS):
                raise Refusal(409, "session_in_use", "The session's other connection does not end.", "resume")

    def take(self, token: str) -> Robot:
        """The session of that token, which no connection holds. Raises Refusal(404)."""
        robot = self.known(token)
        self._parked.pop(token).timer.cancel()
        return robot

    def known(self, token: str) -> Robot:
        """The session of that token, with or without a connection. Raises Refusal(404)."""
        robot = self._robots.get(token)
        if robot is None or (robot.live is None and token not in self._parked):
            raise Refusal(404, "session_not_found", "There is no session to resume, or it waited too long.", "resume")
        return robot

    def park(self, robot: Robot) -> None:
        """Its connection is gone; the one that has waited longest makes room."""
        token = robot.core.identity.resume
        timer = asyncio.get_running_loop().call_later(RESUME_SECONDS, self._drop, token)
        self._parked[token] = _Parked(timer)
        if len(self._parked) > self._most:
            self._drop(next(iter(self._parked)))

    async def close(self, robot: Robot) -> None:
        """The session is over."""
        self._robots.pop(robot.core.identity.resume, None)
        await robot.close()

    async def clear(self) -> None:
        """Nobody comes back any more."""
        for token in list(self._parked):
            self._drop(token)
        await asyncio.gather(*self._closing)

    def _drop(self, token: str) -> None:
        parked = self._parked.pop(token, None)
        robot = self._robots.get(token)
        if parked is not None and robot is not None:
            parked.timer.cancel()
            closing = asyncio.get_running_loop().create_task(self.close(robot))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


async def _left(robot: Robot, live: Live, seconds: float) -> bool:
    """Whether the connection has given the session up by then, be it to yet another one."""
    try:
        async with asyncio.timeout(seconds):
            while robot.live is live:
                await robot.free.wait()
    except TimeoutError:
        return False
    return True


PARKING: web.AppKey[Parking] = web.AppKey("parking", Parking)


async def seated(server: Server, account: Account, parking: Parking, token: str | None) -> Seat:
    """A place for a connection, which may be to a session's; the one that held that gives its own back before.

    It has ended then: what can be refused without it is refused before. Raises Refusal.
    """
    if token is not None and server.ready and not server.admission.draining:
        await parking.vacate(token)
    return admitted(server, account)


async def robot_for(server: Server, parking: Parking, model: str, offer: Offer, token: str | None) -> Robot:
    """A new session with a family, or the one of a token, for a connection to hold. Raises Refusal."""
    if token is not None:
        return parking.take(token)
    runtime = await opened(server, model, trace=False, protocol="robot")
    identity = Identity(new_id("robot"), model, secrets.token_urlsafe(24), server.settings.session_seconds)
    robot = Robot(RobotCore(offer, identity, asyncio.get_running_loop().time()), runtime)
    parking.add(robot)
    return robot
