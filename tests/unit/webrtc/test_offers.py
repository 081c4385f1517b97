"""Descriptions of peers that were put together wrongly: each is answered, or rejected by its code; nothing is left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiortc import RTCConfiguration, RTCPeerConnection

from mstar.errors import Rejected
from server.webrtc import patches
from server.webrtc.addresses import Offered
from server.webrtc.peer import Peer

LOOPBACK = (Offered("127.0.0.1", "127.0.0.1"),)
ROUNDS = 120


def peer() -> Peer:
    return Peer(lambda _: None, (), LOOPBACK, (), lambda: None)


@contextmanager
def nothing_unheard() -> Iterator[None]:
    """No task of the loop ends with an exception that nobody takes."""
    loop, told = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: told.append(context))
    yield
    assert told == []


async def offered() -> str:
    """Two sections and a data channel, in one bundle."""
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    connection.createDataChannel("robot")
    for kind in ("video", "audio"):
        connection.addTransceiver(kind, direction="sendonly")
    await connection.setLocalDescription(await connection.createOffer())
    await connection.close()
    return connection.localDescription.sdp


def mutilated(lines: list[str], choice: random.Random) -> str:
    """A few lines left out, doubled, cut, exchanged or changed."""
    lines = list(lines)
    for _ in range(choice.randrange(1, 4)):
        at, other = choice.randrange(len(lines)), choice.randrange(len(lines))
        match choice.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(other, lines[at])
            case 2:
                lines[at] = lines[at][: choice.randrange(len(lines[at]) + 1)]
            case 3:
                lines[at], lines[other] = lines[other], lines[at]
            case 4:
                lines[at] = lines[at].replace("1", choice.choice(("-1", "99999", "", "0")))
            case _:
                lines[at] = choice.choice(("a=mid:", "a=mid:0", "a=group:BUNDLE 9", "a=setup:passive", "c=IN IP4"))
    return "\r\n".join(lines)


async def test_an_offer_is_answered_or_rejected_and_nothing_is_left() -> None:
    lines, choice = (await offered()).split("\r\n"), random.Random(3)
    outcomes = set()
    with nothing_unheard():
        before = asyncio.all_tasks()
        for _ in range(ROUNDS):
            one = peer()
            try:
                await one.answer(mutilated(lines, choice))
                outcomes.add("answered")
            except Rejected as why:
                outcomes.add(why.code)
            await one.close()
        async with asyncio.timeout(30):
            while asyncio.all_tasks() != before:  # noqa: ASYNC110  tasks of aiortc's own tell nobody that they end
                await asyncio.sleep(0.01)  # what was about to connect notices that there is nothing to connect to
    assert outcomes == {"answered", "invalid_offer"}


@pytest.mark.parametrize(("given", "wanted"), [("a=mid:1", "a=mid:0"), ("a=group:BUNDLE 0 1 2", "a=group:BUNDLE 7 1")])
async def test_sections_have_names_of_their_own_and_a_bundle_has_theirs(given: str, wanted: str) -> None:
    offer = await offered()
    assert given in offer
    with pytest.raises(Rejected, match="names of the sections") as wrong:
        await peer().answer(offer.replace(given, wanted))
    assert wrong.value.code == "invalid_offer"


async def test_what_can_not_be_closed_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[RTCPeerConnection] = []

    async def fails(_: RTCPeerConnection) -> None:
        raise AttributeError

    monkeypatch.setattr(RTCPeerConnection, "close", fails)
    monkeypatch.setattr(patches, "drop_sockets", dropped.append)
    one = peer()
    await one.close()
    await one.close()
    assert len(set(dropped)) == 1
