"""A worker process: who is free turns it, one at a time, and whoever sleeps is woken in time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from models.toy.model import FAMILY
from mstar.bus.zeromq import ZmqEndpoint
from mstar.clock import ManualClock, MonotonicClock
from mstar.messages import BeginRequest, BeginWalk, CloseSession, Message, SessionOpened, WalkDone
from mstar.node.worker_loop import PROGRESS_SECONDS, Turns
from mstar.placement import one_rank
from mstar.transport.inline import InlineTransport
from mstar.worker.build import build_worker
from mstar.worker.executor import ComputeThread
from mstar.worker.worker import Worker

NAME = "worker.main"
ROUNDS = 1_000
"""Waits of a second, after which what has not come will not come."""


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[ZmqEndpoint]:
    end = ZmqEndpoint(tmp_path, NAME)
    yield end
    end.close()


class Turned:
    """A worker that notes what is done to it."""

    def __init__(self) -> None:
        self.stopped = False
        self.wake: float | None = None
        self.turns = 0
        self.told = 0
        self.heard: list[Message] = []

    def handle(self, message: Message) -> None:
        self.heard.append(message)

    def collect(self) -> None:
        self.turns += 1

    def schedule(self) -> bool:
        return False

    def next_wake(self) -> float | None:
        return self.wake

    def progress(self, life: int) -> None:
        self.told += life


def test_the_main_thread_is_woken_for_what_is_due_before_it_would_wake(endpoint: ZmqEndpoint) -> None:
    worker, clock = Turned(), ManualClock(10.0)
    turns = Turns(cast("Worker", worker), endpoint, clock, 1)
    assert turns.take() == PROGRESS_SECONDS
    assert turns.go_on()
    worker.wake = 10.5
    assert not turns.go_on()
    assert turns.take() == 0.5
    assert turns.go_on()
    worker.stopped = True
    assert not turns.go_on()
    assert turns.take() == 0.0


def test_progress_is_told_once_a_second_whoever_turns(endpoint: ZmqEndpoint) -> None:
    worker, clock = Turned(), ManualClock()
    turns = Turns(cast("Worker", worker), endpoint, clock, 1)
    for turn in (turns.take, turns.go_on, turns.go_on, turns.take):
        turn()
        clock.advance(PROGRESS_SECONDS / 2)
    assert worker.told == 1


def test_a_step_that_ends_after_the_end_turns_nothing(endpoint: ZmqEndpoint) -> None:
    worker = Turned()
    turns = Turns(cast("Worker", worker), endpoint, ManualClock(), 1)
    turns.end()
    assert not turns.go_on()
    assert worker.turns == 0


def test_who_turns_takes_up_what_has_arrived(endpoint: ZmqEndpoint, tmp_path: Path) -> None:
    worker = Turned()
    turns = Turns(cast("Worker", worker), endpoint, ManualClock(), 1)
    peer = ZmqEndpoint(tmp_path, "peer")
    peer.send(NAME, CloseSession("s"))
    for _ in range(ROUNDS):
        endpoint.wait(1)
        turns.go_on()
        if worker.heard:
            break
    assert worker.heard == [CloseSession("s")]
    assert not endpoint.wait(0)
    peer.close()


def test_a_walk_goes_on_though_the_main_thread_sleeps(endpoint: ZmqEndpoint, tmp_path: Path) -> None:
    conductor = ZmqEndpoint(tmp_path, "conductor")
    graphs, clock, thread = {"toy": FAMILY.graph({})}, MonotonicClock(), ComputeThread(NAME)
    placement = one_rank()
    placed = {"toy": placement.place("toy", graphs["toy"])}
    [rank] = placement.ranks
    worker = build_worker(NAME, rank, graphs, placed, {"toy": {}}, endpoint, clock, thread, InlineTransport())
    turns = Turns(worker, endpoint, clock, 1)
    thread.relieve_with(turns.go_on)
    worker.handle(SessionOpened("s", "toy", "conductor", (NAME,)))
    worker.handle(BeginRequest("s", "s.1", "roll", 1, {"state": np.array([1.0, 2.0])}, {"horizon": 3}))
    [roll] = [task for task in graphs["toy"].tasks if task.name == "roll"]
    for partition, walk in roll.start.items():
        worker.handle(BeginWalk("s.1", partition, walk))
    turns.take()
    came: list[Message] = []
    for _ in range(ROUNDS):
        conductor.wait(1)
        came += conductor.receive()
        if any(isinstance(message, WalkDone) for message in came):
            break
    assert [message.request for message in came if isinstance(message, WalkDone)] == ["s.1"]
    assert worker.steps > 5
    turns.end()
    thread.close()
    conductor.close()
