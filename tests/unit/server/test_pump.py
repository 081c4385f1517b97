"""The shell of a session: sound that its account does not pay for."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import cast

import numpy as np
import pytest

from models.toy.model import CONVERSATION
from mstar.client import Session as Runtime
from mstar.errors import Rejected
from server.events.decode import decode
from server.events.server import Error, ServerEvent
from server.limits import Account, Allowance, ErrorBudget
from server.metrics import Metrics
from server.pump import DEAF_SECONDS, Pump
from server.session.core import SessionCore
from server.session.options import Options
from server.traces import Traces
from server.watch import Watch

RATE = CONVERSATION.mic_rate
BY_HAND = b'{"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"turn_detection": null}}}}'


class Fed:
    """The runtime's session, which takes sound."""

    id, family, workers = "s", "toy", ()

    def feed(self, *_: object, **__: object) -> None: ...


class Talking:
    """A user who talks on and on, its account, and its client's end, which counts what goes wrong."""

    def __init__(self, group: asyncio.TaskGroup, seconds: float) -> None:
        self.now = 100.0
        self.times: list[float] = []
        self.taken = 0
        self.tolerated = True
        self._budget = ErrorBudget()
        self._account = Account(Allowance(seconds=seconds), lambda: self.now)
        core = SessionCore(CONVERSATION, "toy", Options(), lambda kind: kind, self.now, 0)
        runtime, traces = cast("Runtime", Fed()), Traces()
        traces.begin(runtime, self.now)
        watch = Watch(Metrics(), traces.of(runtime))
        self.pump = Pump(core, runtime, self, group, lambda: self.now, watch, self._hears)
        self.pump.client(decode(BY_HAND))

    def _hears(self, samples: int) -> None:
        self._account.hear(samples / RATE)
        self.taken += samples

    def talk(self, seconds: float, chunk: float) -> list[bool]:
        """In chunks of so many seconds → whether each was heard."""
        heard = []
        for _ in range(round(seconds / chunk)):
            before = self.taken
            self.pump.hear(np.zeros(round(chunk * RATE), np.float32))
            heard.append(self.taken > before)
            self.now += chunk
        return heard

    def send(self, event: ServerEvent) -> None:
        if isinstance(event, Error):
            assert event.error.code == "rate_limit_exceeded"
            self.times.append(self.now)
            self.tolerated = self.tolerated and self._budget.spend(self.now)

    def play(self, *_: object) -> None: ...
    def clear(self, *_: object) -> None: ...
    def end(self, *_: object) -> None: ...


@pytest.mark.parametrize("chunk", [0.02, 0.1, 1.0])
@pytest.mark.parametrize("seconds", [1.0, 10.0, 40.0])
async def test_who_talks_beyond_an_allowance_is_told_seldom_and_heard_in_stretches(
    seconds: float, chunk: float
) -> None:
    async with asyncio.TaskGroup() as group:
        talking = Talking(group, seconds)
        heard = talking.talk(600, chunk)
        talking.pump.stop()
    assert talking.tolerated
    assert talking.times
    assert all(after - before >= DEAF_SECONDS - chunk for before, after in pairwise(talking.times))
    assert 0.9 * 600 * seconds / 60 <= talking.taken / RATE <= 600 * seconds / 60 + seconds + chunk
    refused = [index for index in range(1, len(heard)) if heard[index - 1] and not heard[index]]
    assert len(refused) == len(talking.times)  # every time that it is no longer heard


async def test_who_has_used_up_an_allowance_is_heard_when_a_long_piece_is_paid_for() -> None:
    async with asyncio.TaskGroup() as group:
        talking = Talking(group, 3.0)
        assert talking.talk(4, 1.0) == [True, True, True, False]
        talking.now += 16.9  # a second more of sound comes in 20
        assert talking.talk(1, 1.0) == [False]
        talking.now += 2
        assert talking.talk(1, 1.0) == [True]
        talking.pump.stop()
    assert len(talking.times) == 1


async def test_what_else_goes_wrong_is_told_while_nobody_listens() -> None:
    async with asyncio.TaskGroup() as group:
        talking = Talking(group, 1.0)
        talking.talk(2, 0.5)
        talking.pump.refuse(Rejected("no", code="rate_limit_exceeded"), None)
        talking.pump.stop()
    assert len(talking.times) == 2
