from __future__ import annotations

import asyncio

from server.webrtc.peer import CONNECT_SECONDS, VANISHED_SECONDS, Peer
from tests.unit.webrtc.jumping import run


def peer() -> Peer:
    return Peer(lambda _: None, (), (), (), lambda: None)


def test_a_peer_of_whom_nothing_comes_any_more_is_gone_within_ten_seconds() -> None:
    async def main() -> float:
        gone, loop = peer(), asyncio.get_running_loop()
        gone.connected.set()
        gone._arrived()
        waiting = asyncio.ensure_future(gone.vanished())
        await asyncio.sleep(5.0)
        gone._arrived()
        await asyncio.sleep(VANISHED_SECONDS - 0.1)
        assert not waiting.done()
        last = loop.time() - (VANISHED_SECONDS - 0.1)
        await waiting
        await gone.close()
        return loop.time() - last

    assert run(main()) <= 10


def test_a_peer_that_does_not_come_is_not_waited_for() -> None:
    async def main() -> float:
        never = peer()
        await never.vanished()
        passed = asyncio.get_running_loop().time()
        await never.close()
        return passed

    assert run(main()) == CONNECT_SECONDS
