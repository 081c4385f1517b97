"""A robot's live session while it is connected: carries the core's commands out, and what comes back into the core."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from media.pictures import Picture
from media.video import VideoShot
from models.registry import Planner
from mstar.client import Emission, Session, Slice
from mstar.errors import Rejected
from mstar.tensors import Value
from server import outbound
from server.limits import ErrorBudget
from server.metrics import Metrics
from server.outbound import Close, Outbound
from server.robot.asking import decoded, question_for
from server.robot.commands import Begin, Cancel, Command, Count, End, Send, Show
from server.robot.core import RobotCore
from server.robot.events import ClientEvent, Fault, encode
from server.robot.frames import Frame, pack_imagined
from server.robot.questions import Failed, answered
from server.webrtc.screen import Screen

TAKEN_OVER = 4001
"""Close code of a connection whose session was resumed over another one."""


class Over(Exception):
    """The connection has ended; everything of it ends with it."""


class Guest(Protocol):
    """A connection that ends with the session."""

    def hang_up(self) -> None: ...


class Robot:
    """A session that outlives its connections: its core, and its session of the runtime."""

    def __init__(self, core: RobotCore, runtime: Session) -> None:
        self.core = core
        self.runtime = runtime
        self.live: Live | None = None
        """Its connection."""
        self.free = asyncio.Event()
        """No connection holds it."""
        self.screen = Screen()
        self.guests: set[Guest] = set()
        """Peers that send it a camera, or look at what it shows."""
        self.over = False
        """Nobody comes to it any more."""
        self._item = 0
        self._shape: tuple[int, ...] | None = None

    @property
    def item(self) -> int:
        """Where the next frame goes in the camera's stream."""
        return self._item

    def put(self, camera: str, picture: Picture) -> int:
        """A frame into the camera's stream → its item. Raises Rejected for a picture of another size."""
        if self._shape not in {None, picture.shape}:
            text = f"{camera}: a picture of {picture.shape}, those before were of {self._shape}"
            raise Rejected(text, code="wrong_shape", param=camera)
        self.runtime.feed(camera, self._item, picture)
        self._shape = picture.shape
        self._item += 1
        return self._item - 1

    async def close(self) -> None:
        """The session is over, for its guests as well."""
        self.over = True
        for guest in self.guests:
            guest.hang_up()
        await self.runtime.close()


class Live:
    """One connection's shell, inside its TaskGroup. Whoever has made it writes what is `outbound`."""

    def __init__(self, robot: Robot, group: asyncio.TaskGroup, metrics: Metrics) -> None:
        self.outbound = Outbound()
        self.pictures = False
        """Whether what is imagined may go `outbound`, too."""
        self._robot = robot
        self._core = robot.core
        self._metrics = metrics
        self._mistakes = ErrorBudget()
        self._asked: dict[int, asyncio.Task[None]] = {}
        self._looking: set[int] = set()  # plans whose first frame is in the stream
        self._next: Show | None = None
        self._showing: asyncio.Task[None] | None = None
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._now = asyncio.get_running_loop().time
        self._group = group
        self._attached = False
        self._imagining: asyncio.Task[None] | None = None
        self._drop = asyncio.Event()

    def end(self, code: int, reason: str) -> None:
        """Close the connection once everything has been said."""
        self.outbound.push(Close(code, reason))

    def drop(self) -> None:
        """End the connection now, whatever was still to be said."""
        self._drop.set()

    async def dropped(self) -> None:
        """Raises Over as soon as the connection was dropped."""
        await self._drop.wait()
        raise Over

    # ------------------------------------------------------------------------------------------- life

    def start(self) -> None:
        """The connection begins."""
        self._group.create_task(self._watch())
        self._group.create_task(self._tick())
        self._attached = True
        self._run(self._core.attach(self._now()))

    def stop(self) -> None:
        """It is gone; what it had begun ends with the group."""
        self._attached = False
        if self._timer is not None:
            self._timer.cancel()
        for command in self._core.detach(self._now()):
            if isinstance(command, Count):
                self._count(command)

    async def _watch(self) -> None:
        """Give up a client that has stopped reading for too long; begin nothing new for it before."""
        while True:
            await self.outbound.turned()
            if self.outbound.overflowing:
                raise Over
            self._run(self._core.congested(self.outbound.congested, self._now()))

    async def _tick(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self._run(self._core.tick(self._now()))

    # ------------------------------------------------------------------------------------------- the client

    def client(self, event: ClientEvent) -> None:
        self._run(self._core.client(event, self._now()))

    def frame(self, frame: Frame) -> None:
        """A picture of a camera, or of a goal."""
        self._run(self._core.frame(frame, self._now()))

    def seen(self, camera: str, shot: VideoShot, taken: float) -> None:
        """A picture of a camera's video, captured at the time `taken` of the loop's clock."""
        if self._attached:
            self._run(self._core.seen(camera, taken, shot, self._now()))
        else:
            self._metrics.frames.labels("dropped").inc()

    def heard(self, text: str) -> None:
        """Somebody said something to the robot."""
        if self._attached:
            self._run(self._core.heard(text, self._now()))

    def refuse(self, why: Rejected) -> None:
        """Something that could not be read."""
        self._run(self._core.refuse(why, self._now()))

    # ------------------------------------------------------------------------------------------- commands

    def _run(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Send(event=event):
                    self.outbound.push(outbound.Frame(encode(event)))
                    if isinstance(event, Fault):
                        self._metrics.errors.labels(event.code).inc()
                        if not self._mistakes.spend(self._now()):
                            self.end(1008, "too many errors")
                case Begin(key=key):
                    self._asked[key] = self._group.create_task(self._answer(command))
                case Show():
                    self._next = command
                    self._show()
                case Cancel(key=key):
                    self._asked.pop(key).cancel()
                    self._looking.discard(key)
                case Count():
                    self._count(command)
                case End(code=code, reason=reason):
                    self.end(code, reason)
        at = self._core.next()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._due.set) if math.isfinite(at) else None

    def _count(self, count: Count) -> None:
        if count.of == "frames":
            self._metrics.frames.labels(count.how).inc()
        else:
            self._metrics.chunks.labels("live", count.how).inc()
        if count.age is not None:
            self._metrics.frame_age.observe(count.age)

    # ------------------------------------------------------------------------------------------- the runtime

    async def _answer(self, begin: Begin) -> None:
        """One request of the runtime, told to the core."""
        try:
            if isinstance(self._core.offer, Planner):
                await self._look(begin)
            question = await asyncio.to_thread(question_for, self._core.offer, begin, self._robot.item - 1)
            value = await answered(self._robot.runtime, question, partial(self._emitted, begin.key))
        except Rejected as why:
            self._forget(begin.key)
            self._run(self._core.failed(begin.key, why.code, why.message, why.param, self._now()))
        except Failed as why:
            self._forget(begin.key)
            self._run(self._core.failed(begin.key, why.code, why.message, why.param, self._now()))
        else:
            self._forget(begin.key)
            self._run(self._core.answered(begin.key, value, self._now()))
            self._show_plan(begin, value)

    def _show_plan(self, begin: Begin, value: Mapping[str, Value]) -> None:
        """Have imagined where the plan leads, if the session wants it or anybody looks; the newest plan counts."""
        offer, item = self._core.offer, value.get("observation")
        if not isinstance(offer, Planner) or not offer.imagine or not isinstance(item, int) or item < 0:
            return
        if self._core.shown.show or self._robot.screen.watched:
            if self._imagining is not None:
                self._imagining.cancel()
            self._imagining = self._group.create_task(self._imagine(offer, begin, item, value["actions"]))

    async def _imagine(self, offer: Planner, begin: Begin, item: int, actions: Value) -> None:
        """Every frame is shown when it is made."""
        inputs: dict[str, Value | Slice] = {
            "frames": Slice(offer.camera, item, item + 1),
            "actions": actions,
            "states": begin.state["state"][None],
        }
        request = self._robot.runtime.start(offer.imagine, inputs, begin.settings)
        try:
            async for event in request:
                if isinstance(event, Emission) and isinstance(event.value, Mapping):
                    picture = event.value.get("picture")
                    if isinstance(picture, np.ndarray):
                        self._robot.screen.show(picture)
                        self._send_picture(begin.key, event.value.get("frame"), picture)
        finally:
            request.interrupt()

    def _send_picture(self, chunk: int, row: Value, picture: Picture) -> None:
        """To a client that asked for pictures and reads them."""
        shown = self._core.shown
        if self.pictures and shown.show and isinstance(row, int) and not self.outbound.congested:
            self.outbound.push(outbound.Frame(pack_imagined(chunk, row, 1 / shown.rate, picture), binary=True))

    def _emitted(self, key: int) -> None:
        self._looking.discard(key)
        self._run(self._core.emitted(key, self._now()))

    def _forget(self, key: int) -> None:
        self._asked.pop(key, None)
        self._looking.discard(key)

    async def _look(self, begin: Begin) -> None:
        """The plan's first frame into the stream, and any newer one that came meanwhile."""
        pictures = await asyncio.to_thread(decoded, begin)
        for name, picture in pictures.items():
            self._put(begin.key, begin.frames[name], picture)
        self._looking.add(begin.key)
        self._show()

    def _put(self, key: int, frame: Frame, picture: Picture) -> None:
        item = self._robot.put(frame.name, picture)
        self._run(self._core.looking(key, item, frame, self._now()))

    def _show(self) -> None:
        if self._showing is None or self._showing.done():
            self._showing = self._group.create_task(self._show_newest())

    async def _show_newest(self) -> None:
        """Frames that are newer than the one a waiting plan began with; the newest wins here, too."""
        while (show := self._next) is not None and show.key in self._looking:
            self._next = None
            try:
                picture = await asyncio.to_thread(show.frame.shot.decoded, show.frame.name)
                if show.key in self._looking:
                    self._put(show.key, show.frame, picture)
            except Rejected as why:
                self._run(self._core.refuse(why, self._now()))
