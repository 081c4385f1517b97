from __future__ import annotations

import asyncio
from typing import cast

from mstar.client import Session
from server.metrics import Metrics
from server.robot.core import Identity, RobotCore
from server.robot.live import Robot
from server.robot.rtc import RobotCall
from server.webrtc.peer import CONNECT_SECONDS
from tests.unit.robot.robots import POLICY
from tests.unit.webrtc.jumping import run


def call() -> RobotCall:
    robot = Robot(RobotCore(POLICY, Identity("r", "m", "token", 3600.0), 0.0), cast("Session", object()))
    return RobotCall(robot, ("images/left",), Metrics(), (), ())


def test_who_is_there_but_never_opens_the_data_channel_does_not_keep_its_place() -> None:
    async def main() -> float:
        silent = call()
        silent.peer.connected.set()

        async def live() -> None:
            while True:
                silent.peer._arrived()
                await asyncio.sleep(3)

        living = asyncio.ensure_future(live())
        assert not await silent.run()
        living.cancel()
        await silent.free()
        return asyncio.get_running_loop().time()

    assert run(main()) == 2 * CONNECT_SECONDS


def test_who_hangs_up_ends_the_session_and_who_is_lost_does_not() -> None:
    async def main() -> tuple[bool, bool]:
        polite, lost = call(), call()
        ending = [asyncio.ensure_future(each.run()) for each in (polite, lost)]
        await asyncio.sleep(1)
        polite.hang_up()
        lost._lost()
        over = [await each for each in ending]
        for each in (polite, lost):
            await each.free()
        return over[0], over[1]

    assert run(main()) == (True, False)
