"""A client whose askers leave at the wrong moment, and whose workers go."""

from __future__ import annotations

import asyncio

import pytest

from mstar.bus.local import LocalBus
from mstar.client.client import Client
from mstar.errors import Rejected
from mstar.messages import Answer, Ask, Emission, RequestEnded, SessionOpened, WorkerDown


async def test_an_answer_to_who_has_just_left_harms_nobody() -> None:
    bus = LocalBus()
    conductor = bus.endpoint("conductor")
    client = Client(bus.endpoint("server"))
    leaving = asyncio.ensure_future(client.ask("workers"))
    staying = asyncio.ensure_future(client.ask("census"))
    await asyncio.sleep(0)
    asked = [message.ask for message in conductor.receive() if isinstance(message, Ask)]
    leaving.cancel()  # its task has not run again yet
    for number in asked:
        conductor.send("server", Answer(number, "conductor", number))
    assert await staying == asked[1]
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_who_asked_a_lost_worker_is_answered_with_nothing() -> None:
    bus = LocalBus()
    conductor = bus.endpoint("conductor")
    client = Client(bus.endpoint("server"))
    asking = asyncio.ensure_future(client.ask("census", of="worker.main"))
    leaving = asyncio.ensure_future(client.ask("census", of="worker.main"))
    await asyncio.sleep(0)
    leaving.cancel()
    conductor.send("server", WorkerDown("worker.main", "why"))
    assert await asking is None


async def test_without_a_conductor_nothing_is_opened() -> None:
    client = Client(LocalBus().endpoint("server"))
    opening = asyncio.ensure_future(client.open("toy"))
    await asyncio.sleep(0)
    client.lose("conductor ended with status -9")
    with pytest.raises(Rejected, match="conductor ended") as early:
        await opening
    with pytest.raises(Rejected) as late:
        await client.open("toy")
    assert early.value.code == late.value.code == "not_ready"
    assert not client.sessions
    assert await asyncio.wait_for(client.ask("workers"), 60) is None


async def test_a_cancellation_at_the_moment_of_the_answer_is_not_lost() -> None:
    bus = LocalBus()
    conductor = bus.endpoint("conductor")
    client = Client(bus.endpoint("server"))
    opening = asyncio.ensure_future(client.open("toy"))
    await asyncio.sleep(0)
    [name] = client.sessions
    conductor.send("server", SessionOpened(name, "toy", "server", ("worker.main",), "worker.main"))
    opening.cancel()  # its task has not run again yet
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not client.sessions


async def test_an_interrupt_that_crosses_a_good_end_is_ended_by_it() -> None:
    """The emissions that the end counts come after the interrupt, and nobody waits for them."""
    bus = LocalBus()
    conductor = bus.endpoint("conductor")
    client = Client(bus.endpoint("server"))
    request = client.open_soon("toy").start("say")
    request.interrupt()
    conductor.send("server", Emission(request.id, "audio", 0, 1))
    conductor.send("server", RequestEnded(request.id, "done", emitted={"audio": 2}))
    events = [event async for event in request]
    assert [type(event) for event in events] == [RequestEnded]
    assert not request.session.requests
