"""Carries a session core's commands out on the runtime, and what comes back into the core."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mstar.client import Emission, Request, RequestEnded
from mstar.client import Session as Runtime
from mstar.errors import Rejected
from server.events.client import AnyClientEvent
from server.events.server import ServerEvent
from server.limits import Limited
from server.session.commands import (
    BargedIn,
    ClearAudio,
    Command,
    EndSession,
    FeedMic,
    GrantCredit,
    InterruptTask,
    PlayAudio,
    Send,
    StartTask,
    Underran,
)
from server.session.core import SessionCore
from server.session.microphone import STREAM
from server.session.tasks import Ended
from server.watch import Watch

AUDIO = "audio"
"""Name of the emission that credit is granted for."""
DEAF_SECONDS = 5.0
"""Sound that is refused is so for this long at least. What an allowance gives back would soon pay for one more piece,
and be used up by it: whoever talks on would be told of every other piece, and be heard in crumbs.
"""


class Transport(Protocol):
    """The client's end: takes what the core has for it. Nothing here waits."""

    def send(self, event: ServerEvent) -> None: ...

    def play(self, sound: PlayAudio) -> None: ...

    def clear(self, response_id: str) -> None:
        """Drop sound of a response that has not left yet."""
        ...

    def end(self, code: int, reason: str) -> None:
        """Close the connection once everything has been said."""
        ...


def free(samples: int) -> None:
    """Sound that costs nothing."""


class Pump:
    """One session's shell, inside its TaskGroup. `clock` gives monotonic seconds.

    `hears` is told the samples of all sound of the user, and may raise Limited: that is told once, and nothing is heard
    until its `retry_after` and `DEAF_SECONDS` are over.
    """

    def __init__(
        self,
        core: SessionCore,
        runtime: Runtime,
        transport: Transport,
        group: asyncio.TaskGroup,
        clock: Callable[[], float],
        watch: Watch,
        hears: Callable[[int], None] = free,
    ) -> None:
        self.core = core
        self._runtime = runtime
        self._transport = transport
        self._group = group
        self._clock = clock
        self._watch = watch
        self._metrics = watch.metrics
        self._hears = hears
        self._deaf_until = -math.inf
        self._requests: dict[int, Request] = {}
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._fresh = asyncio.Event()
        self._congested = False

    # ------------------------------------------------------------------------------------------- in

    def start(self, commands: list[Command]) -> None:
        """Run the core's first commands and keep its time."""
        self._group.create_task(self._ticking())
        self.run(commands)

    def client(self, event: AnyClientEvent) -> None:
        self.run(self.core.client(event, self._clock()))

    def refuse(self, why: Rejected, event_id: str | None) -> None:
        self.run(self.core.refuse(why, event_id))

    def hear(self, pcm: npt.NDArray[np.float32]) -> None:
        now = self._clock()
        if now < self._deaf_until:
            return
        try:
            self._hears(len(pcm))
        except Limited as why:
            self._deaf_until = now + max(DEAF_SECONDS, why.retry_after)
            self.refuse(why, None)
            return
        self.run(self.core.hear(pcm, now))

    def played(self, response_id: str, samples: int) -> None:
        self.run(self.core.played(response_id, samples, self._clock()))

    def congested(self, congested: bool) -> None:
        """Whether the client has stopped reading; the core is told of changes only."""
        if congested != self._congested:
            self._congested = congested
            self.run(self.core.congested(congested, self._clock()))

    async def room(self) -> None:
        """Returns when the core has room for more sound of the user."""
        while self.core.saturated:
            self._fresh.clear()
            await self._fresh.wait()

    def stop(self) -> None:
        """No more time passes; the session's requests end with it."""
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------------------------------- out

    def run(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Send() | PlayAudio() | ClearAudio() | EndSession():
                    self._tell_client(command)
                case Underran() | BargedIn():
                    self._count(command)
                case _:
                    self._tell_runtime(command)
        self._fresh.set()
        self._arm()

    def _tell_client(self, command: Send | PlayAudio | ClearAudio | EndSession) -> None:
        match command:
            case Send():
                self._watch.event(command.event)
                self._transport.send(command.event)
            case PlayAudio():
                if command.slack is not None:
                    self._metrics.slack.observe(command.slack)
                self._transport.play(command)
            case ClearAudio():
                self._transport.clear(command.response_id)
            case EndSession():
                self._transport.end(command.code, command.reason)

    def _count(self, command: Underran | BargedIn) -> None:
        match command:
            case Underran():
                self._metrics.underruns.inc()
            case BargedIn(seconds=seconds):
                self._metrics.barge_in.observe(seconds)

    def _tell_runtime(self, command: FeedMic | GrantCredit | StartTask | InterruptTask) -> None:
        match command:
            case FeedMic():
                self._runtime.feed(STREAM, command.index, command.rows, rows=True)
            case GrantCredit():
                request = self._requests.get(command.key)
                if request is not None:
                    request.credit(AUDIO, command.upto, command.played)
            case StartTask():
                self._start(command)
            case InterruptTask():
                request = self._requests.pop(command.key, None)
                if request is not None:
                    request.interrupt(command.heard)

    def _start(self, command: StartTask) -> None:
        inputs: dict[str, Any] = dict(command.inputs)
        request = self._runtime.start(command.task, inputs, command.settings, command.positions)
        self._requests[command.key] = request
        self._group.create_task(self._follow(command.key, request))

    async def _follow(self, key: int, request: Request) -> None:
        """Every event of one request goes into the core, its terminal one last."""
        async for event in request:
            match event:
                case Emission():
                    commands = self.core.emission(key, event.output, event.index, event.value, self._clock())
                case RequestEnded():
                    self._requests.pop(key, None)
                    commands = self.core.ended(key, Ended(event.status, event.code, event.cause), self._clock())
            self.run(commands)

    async def _ticking(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self.run(self.core.tick(self._clock()))

    def _arm(self) -> None:
        at = self.core.next(self._clock())
        if self._timer is not None:
            if self._timer.when() == at and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if math.isfinite(at):
            self._timer = asyncio.get_running_loop().call_at(at, self._ring)

    def _ring(self) -> None:
        """The time has come; the core may ask for the same again, where the loop was a moment early."""
        self._timer = None
        self._due.set()
