"""The bus between processes: nothing blocks, nothing is lost, what is lost is counted, nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from mstar.bus import BusOverflow
from mstar.bus.wire import Envelope, encode
from mstar.bus.zeromq import HIGH_WATER, ZmqEndpoint
from mstar.messages import CloseSession

MANY = 10_000
SOME = 500
ENOUGH = 200_000
"""Rounds of waiting after which messages that have not come will not come."""
PATIENCE = 60.0
"""Seconds of one wait after which what should have ended it will not come."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ZmqEndpoint, ZmqEndpoint]]:
    """Of sockets that take little."""
    yield from _pair(tmp_path, 10)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[tuple[ZmqEndpoint, ZmqEndpoint]]:
    """Of sockets that take all of `SOME` messages: none of them has to be flushed."""
    yield from _pair(tmp_path, HIGH_WATER)


def _pair(where: Path, high_water: int) -> Iterator[tuple[ZmqEndpoint, ZmqEndpoint]]:
    ends = ZmqEndpoint(where, "a", high_water=high_water), ZmqEndpoint(where, "b", high_water=high_water)
    yield ends
    for end in ends:
        end.close()
    assert list(where.iterdir()) == []


def numbers(end: ZmqEndpoint) -> list[int]:
    return [int(message.session) for message in end.receive() if isinstance(message, CloseSession)]


def test_both_send_more_than_the_sockets_take_before_either_reads(pair: tuple[ZmqEndpoint, ZmqEndpoint]) -> None:
    a, b = pair
    for number in range(MANY):
        a.send("b", CloseSession(str(number)))
        b.send("a", CloseSession(str(number)))
    assert a.waiting > 0
    assert b.waiting > 0
    at_a: list[int] = []
    at_b: list[int] = []
    for _ in range(ENOUGH):
        a.wait(0)
        at_a += numbers(a)
        b.wait(0)
        at_b += numbers(b)
        if len(at_a) == len(at_b) == MANY:
            break
    assert at_a == at_b == list(range(MANY))
    assert (a.lost, b.lost, a.waiting, b.waiting) == (0, 0, 0, 0)


async def test_in_an_asyncio_loop_arrivals_wake_their_owner_and_what_waits_goes_out_by_itself(
    pair: tuple[ZmqEndpoint, ZmqEndpoint],
) -> None:
    a, b = pair
    got: list[int] = []
    done = asyncio.Event()

    def read() -> None:
        got.extend(numbers(b))
        if len(got) == MANY:
            done.set()

    for end in pair:
        end.attach()
    b.on_arrival(read)
    for number in range(MANY):
        a.send("b", CloseSession(str(number)))
    await asyncio.wait_for(done.wait(), 60)
    assert got == list(range(MANY))


def test_a_peer_that_does_not_read_is_an_overflow(tmp_path: Path) -> None:
    a, b = ZmqEndpoint(tmp_path, "a", high_water=1, overflow=5), ZmqEndpoint(tmp_path, "b", high_water=1)

    def flood() -> None:
        for _ in range(MANY):
            a.send("b", CloseSession("x" * 10_000))

    with pytest.raises(BusOverflow, match="b has not read 5 messages of a"):
        flood()
    assert a.waiting == 5
    a.close()
    b.close()


def test_a_lost_message_is_counted(pair: tuple[ZmqEndpoint, ZmqEndpoint], tmp_path: Path) -> None:
    _, b = pair
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(f"ipc://{tmp_path / 'b'}")
        for number in (1, 2, 5, 6):
            socket.send(encode(Envelope("stranger", number, CloseSession(str(number)))))
        got: list[int] = []
        while len(got) < 4:
            b.wait(1)
            got += numbers(b)
    assert got == [1, 2, 5, 6]
    assert b.lost == 2


def test_a_party_may_come_up_after_it_is_spoken_to(tmp_path: Path) -> None:
    early = ZmqEndpoint(tmp_path, "early")
    early.send("late", CloseSession("1"))
    late = ZmqEndpoint(tmp_path, "late")
    got: list[int] = []
    while not got:
        late.wait(1)
        got += numbers(late)
    assert got == [1]
    early.close()
    late.close()


def test_a_socket_is_stirred_from_an_arrival_on_until_it_is_read(pair: tuple[ZmqEndpoint, ZmqEndpoint]) -> None:
    a, b = pair
    got: list[int] = []
    for number in range(SOME):
        a.send("b", CloseSession(str(number)))
        for _ in range(ENOUGH):
            a.flush()
            b.wait(0.001)
            if b.stirred():
                got += numbers(b)
            if len(got) > number:
                break
        assert len(got) == number + 1
        assert not b.stirred()
    assert got == list(range(SOME))


def test_waiting_ends_with_a_watched_descriptor(pair: tuple[ZmqEndpoint, ZmqEndpoint]) -> None:
    a, _ = pair
    reading, writing = os.pipe()
    a.watch(reading)
    a.receive()
    assert a.wait(0) == []
    os.write(writing, b"x")
    assert a.wait(None) == [reading]
    assert os.read(reading, 1) == b"x"
    os.close(reading)
    os.close(writing)


def test_waiting_ends_at_once_until_what_has_arrived_is_read(deep: tuple[ZmqEndpoint, ZmqEndpoint]) -> None:
    a, b = deep
    for number in range(SOME):
        a.send("b", CloseSession(str(number)))
        got: list[int] = []
        while not got:
            assert b.wait(PATIENCE)
            assert b.wait(PATIENCE)
            got = numbers(b)
        assert got == [number]


def test_one_thread_sleeps_while_another_reads_and_nothing_is_slept_over(deep: tuple[ZmqEndpoint, ZmqEndpoint]) -> None:
    """Of three messages two come when the other thread has read: they wake the one that sleeps."""
    a, b = deep
    got: list[int] = []
    one, over = threading.Condition(), threading.Event()

    def sleep() -> None:
        while b.wait(PATIENCE) and not over.is_set():
            with one:
                got.extend(numbers(b))
                one.notify()

    def reaches(count: int) -> bool:
        with one:
            return one.wait_for(lambda: len(got) == count, PATIENCE)

    sleeper = threading.Thread(target=sleep)
    sleeper.start()
    try:
        for number in range(0, SOME, 3):
            a.send("b", CloseSession(str(number)))
            with one:
                got.extend(numbers(b))
            a.send("b", CloseSession(str(number + 1)))
            a.send("b", CloseSession(str(number + 2)))
            assert reaches(number + 3), f"message {len(got)} was slept over"
    finally:
        over.set()
        a.send("b", CloseSession("over"))
        sleeper.join()
    assert got == list(range(number + 3))
