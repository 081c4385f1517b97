"""The core of a robot's live session: frames, asks, chunks and epochs.

No sockets, no tasks, no clock: `now` is seconds of any monotonic clock; every entry returns the commands of its step.
A session outlives its connections: `attach` begins one, `detach` ends it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from msgspec import UNSET

from models.registry import Planner, Policy
from mstar.errors import Rejected
from mstar.tensors import Value
from server.robot.cameras import Cameras
from server.robot.clock import Acting, RobotClock
from server.robot.commands import Begin, Cancel, Command, Count, End, Goal, Send, Show
from server.robot.events import (
    Ask,
    AskEnded,
    ClientEvent,
    Fault,
    Fields,
    Ping,
    Pong,
    Reset,
    ServerEvent,
    SessionCreated,
    SessionReset,
    SessionResumed,
    SessionUpdate,
    SessionUpdated,
    Shown,
    State,
    Stop,
)
from server.robot.frames import Frame, Kind
from server.robot.offers import Offer, cameras_of, described, states_of
from server.robot.questions import numbers
from server.robot.replies import Latency, Source, reply

QUICK_PINGS, PING_SECONDS = 4, 2.0
"""The first pings follow one another; then one every so often."""
STALE_MS, WAIT_MS = 500.0, 1000.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Of one session."""

    id: str
    model: str
    resume: str
    seconds: float  # longest life


@dataclass(slots=True)
class _Asked:
    ask: Ask
    since: float  # when it began to wait for frames
    told: bool = False  # that there are none


@dataclass(slots=True)
class _Running:
    key: int
    source: Source
    looked: bool = False
    shown: dict[int, Frame] = field(default_factory=dict)  # item of the camera's stream → frame


class RobotCore:
    """See the module."""

    def __init__(self, offer: Offer, identity: Identity, now: float) -> None:
        self.offer = offer
        self.identity = identity
        self.epoch = 0
        self._fields = Shown(
            identity.id, 0, identity.resume, described(identity.model, offer), None, offer.rate, STALE_MS, WAIT_MS,
            "", "", False,
        )  # fmt: skip
        self._expires = now + identity.seconds
        self._goal: Goal | None = None
        self._keys = itertools.count(1)
        self._numbers = itertools.count(1)
        self._out: list[Command] = []
        self._forget()
        self._attached(now)

    # ------------------------------------------------------------------------------------------- connections

    def attach(self, now: float) -> list[Command]:
        """A connection begins; what came over the last one is not used any more, but goals and settings are."""
        self.epoch += 1
        self._forget()
        self._attached(now)
        self._send(SessionCreated(self.shown) if self.epoch == 1 else SessionResumed(self.shown))
        self._ping(now)
        return self._done(now)

    def detach(self, now: float) -> list[Command]:
        """The connection is gone."""
        self._end_ask("detached")
        self._next_ping = math.inf
        return self._done(now)

    @property
    def shown(self) -> Shown:
        """The session as its client sees it."""
        goal = self._goal.name if self._goal is not None else ""
        return msgspec.structs.replace(self._fields, epoch=self.epoch, goal=goal)

    def _attached(self, now: float) -> None:
        self._clock = RobotClock()
        self._sent: dict[int, float] = {}
        self._pings = itertools.count(1)
        self._next_ping = now
        self._congested = False

    def _forget(self) -> None:
        """An episode begins, or goes on after an unknown time."""
        self._cameras = Cameras(lambda fate: self._out.append(Count("frames", fate)))
        self._state: State | None = None
        self._given_up: frozenset[str] = frozenset()  # cameras that the last chunk did without: not waited for
        self._acting: Acting | None = None
        self._latency = Latency()
        self._asked: _Asked | None = None
        self._running: _Running | None = None

    # ------------------------------------------------------------------------------------------- the client

    def client(self, event: ClientEvent, now: float) -> list[Command]:
        try:
            self._take(event, now)
        except Rejected as why:
            self._send(Fault(why.code, why.message, why.param))
        return self._done(now)

    def refuse(self, why: Rejected, now: float) -> list[Command]:
        """A frame that could not be read."""
        self._send(Fault(why.code, why.message, why.param))
        return self._done(now)

    def frame(self, frame: Frame, now: float) -> list[Command]:
        """A picture of a camera, or of a goal."""
        match frame.kind:
            case Kind.GOAL:
                if isinstance(self.offer, Policy):
                    return self.refuse(Rejected("a policy takes no goal but a prompt", code="no_goal"), now)
                self._goal = Goal(frame.name or f"#{next(self._numbers)}", frame.shot)
            case Kind.CAMERA:
                known = cameras_of(self.offer)
                if frame.name not in known:
                    text = f"there is no camera {frame.name!r:.80}; known: {', '.join(known)}"
                    return self.refuse(Rejected(text, code="unknown_camera", param="name"), now)
                self._clock.arrived(frame.t_capture, now)
                if self._cameras.put(frame):
                    self._show(frame)
        return self._done(now)

    def congested(self, congested: bool, now: float) -> list[Command]:
        """Whether the client has stopped reading: then nothing new is begun."""
        self._congested = congested
        return self._done(now)

    def _take(self, event: ClientEvent, now: float) -> None:
        match event:
            case SessionUpdate(session=fields):
                self._update(fields)
            case State():
                self._check_state(event)
                if self._state is None or event.t >= self._state.t:
                    self._state = event
            case Ask():
                self._check_ask()
                self._end_ask("superseded")
                self._asked = _Asked(event, now)
            case Stop():
                self._end_ask("stopped")
            case Reset():
                self._end_ask("reset")
                self.epoch += 1
                self._forget()
                self._send(SessionReset(self.epoch))
            case Pong(id=number, t=t):
                sent = self._sent.pop(number, None)
                if sent is not None:
                    self._clock.ponged(sent, t, now)
                    self._next_ping = now if self._clock.pings < QUICK_PINGS else now + PING_SECONDS

    def _update(self, fields: Fields) -> None:
        """All of it or nothing. Raises Rejected."""
        if fields.cameras is not UNSET and fields.cameras is not None:
            known = cameras_of(self.offer)
            unknown = [name for name in fields.cameras if name not in known]
            if unknown or not fields.cameras:
                text = f"cameras are some of {', '.join(known)}"
                raise Rejected(text, code="unknown_camera", param="session.cameras")
        if fields.blend is True and not (isinstance(self.offer, Policy) and self.offer.blends):
            raise Rejected("this model does not blend its chunks", param="session.blend")
        given = {
            name: value
            for name in ("cameras", "rate", "stale_ms", "wait_ms", "prompt", "blend")
            if (value := getattr(fields, name)) is not UNSET
        }
        self._fields = msgspec.structs.replace(self._fields, **given)
        if fields.goal is not UNSET and (self._goal is None or self._goal.name != fields.goal):
            self._goal = Goal(fields.goal, None) if fields.goal else None
        self._send(SessionUpdated(self.shown))

    def _check_state(self, event: State) -> None:
        wanted = states_of(self.offer)
        values = event.values if isinstance(event.values, dict) else dict.fromkeys(list(wanted)[:1], event.values)
        for key in values:
            if key not in wanted:
                raise Rejected(f"unknown state {key!r:.80}; known: {', '.join(wanted)}", param=f"values.{key}")
        for key, size in wanted.items():
            numbers(key, values.get(key), size)

    def _check_ask(self) -> None:
        if not self._fields.rate:
            raise Rejected(
                "the model does not say how many actions it gives a second: session.rate has to",
                code="missing_key",
                param="session.rate",
            )
        if isinstance(self.offer, Planner) and self._goal is None:
            raise Rejected("a planner needs a goal: send a picture, or name one", code="no_goal", param="session.goal")

    # ------------------------------------------------------------------------------------------- the runtime

    def looking(self, key: int, item: int, frame: Frame, now: float) -> list[Command]:
        """A frame was put into the camera's stream."""
        if self._running is not None and self._running.key == key:
            self._running.shown[item] = frame
        return self._done(now)

    def emitted(self, key: int, now: float) -> list[Command]:
        """A first result of a plan: it has looked, and its goal is known."""
        running = self._running
        if running is not None and running.key == key and not running.looked:
            running.looked = True
            goal = running.source.goal
            if goal is not None and self._goal == goal:
                self._goal = replace(goal, shot=None)
        return self._done(now)

    def answered(self, key: int, value: Mapping[str, Value], now: float) -> list[Command]:
        """The result: it becomes a chunk, in its place in time."""
        running, asked = self._running, self._asked
        if running is None or running.key != key or asked is None:
            return self._done(now)
        seen = running.shown.get(value["observation"]) if isinstance(value.get("observation"), int) else None  # type: ignore[arg-type]
        frames = running.source.frames if seen is None else {seen.name: seen}
        source = replace(running.source, frames=frames)
        self._cameras.use(frames)
        answer = reply(asked.ask, source, value, self._acting, self._clock.robot(now) or 0.0, now)
        self._acting = answer.acting
        self._latency.took(answer.age)
        self._send(answer.event)
        self._out.append(Count("chunks", answer.outcome, answer.age))
        self._running = None
        if asked.ask.repeat:
            asked.since, asked.told = now, False
        else:
            self._end_ask("done")
        return self._done(now)

    def failed(self, key: int, code: str, message: str, param: str | None, now: float) -> list[Command]:
        """It ended without a result."""
        if self._running is not None and self._running.key == key:
            self._running = None
            self._out.append(Count("chunks", "failed"))
            self._send(Fault(code, message, param))
            self._end_ask("failed")
        return self._done(now)

    # ------------------------------------------------------------------------------------------- time

    def next(self) -> float:
        """When `tick` is due."""
        asked = self._asked
        waits = asked is not None and self._running is None and not asked.told and not self._congested
        wait = asked.since + self._fields.wait_ms / 1000 if asked is not None and waits else math.inf
        return min(self._next_ping, self._expires, wait)

    def tick(self, now: float) -> list[Command]:
        if now >= self._expires:
            self._send(Fault("session_expired", f"A session lives {self.identity.seconds:.0f} s."))
            self._out.append(End(1001, "session_expired"))
            self._expires = math.inf
        return self._done(now)

    # ------------------------------------------------------------------------------------------- inside

    def _send(self, event: ServerEvent) -> None:
        self._out.append(Send(event))

    def _done(self, now: float) -> list[Command]:
        if now >= self._next_ping:
            self._ping(now)
        self._begin(now)
        out, self._out = self._out, []
        return out

    def _ping(self, now: float) -> None:
        number = next(self._pings)
        self._sent = {number: now}  # an answer that comes after the next ping is no use
        self._next_ping = now + PING_SECONDS
        self._send(Ping(number))

    def _show(self, frame: Frame) -> None:
        running = self._running
        if running is not None and isinstance(self.offer, Planner) and not running.looked:
            self._out.append(Show(running.key, frame))

    def _end_ask(self, reason: str) -> None:
        if self._running is not None:
            self._out.append(Cancel(self._running.key))
            self._out.append(Count("chunks", reason))
            self._running = None
        if self._asked is not None:
            self._send(AskEnded(self._asked.ask.id, reason))
            self._asked = None

    def _begin(self, now: float) -> None:
        """Ask the model if there is an ask, and what it needs."""
        asked = self._asked
        if asked is None or self._running is not None or self._congested:
            return
        robot = self._clock.robot(now)
        idle = robot is None or (asked.ask.repeat and not self._cameras.newer())
        frames = {} if idle else self._cameras.fresh((robot or 0.0) - self._fields.stale_ms / 1000)
        absent = [name for name in self._fields.cameras or self._cameras.seen if name not in frames]
        waited = now >= asked.since + self._fields.wait_ms / 1000
        if not frames or self._state is None:
            if waited:
                self._report(asked, (absent or ["a frame"]) if not frames else ["state"])
        elif waited or self._given_up.issuperset(absent):
            self._given_up = frozenset(absent)
            self._start(asked, frames, tuple(absent), robot or 0.0, now)

    def _report(self, asked: _Asked, lacks: list[str]) -> None:
        if not asked.told:
            asked.told = True
            text = f"there was none within {self._fields.wait_ms:.0f} ms that is new enough: {', '.join(lacks)}"
            self._send(Fault("no_fresh_frame", text, lacks[0]))
            if not asked.ask.repeat:
                self._end_ask("failed")

    def _start(
        self, asked: _Asked, frames: Mapping[str, Frame], absent: tuple[str, ...], robot: float, now: float
    ) -> None:
        state, ask = self._state, asked.ask
        assert state is not None
        newest = max(frame.t_capture for frame in frames.values())
        previous, delay = None, 0
        acting = self._acting
        if self._fields.blend and acting is not None and not ask.standing and robot < acting.end:
            rest = acting.rest(newest)
            if len(rest):
                previous, delay = rest, min(self._latency.rows(acting.dt), len(rest))
        settings = dict(ask.settings)
        if ask.deadline_ms is not None and isinstance(self.offer, Planner):
            settings["deadline_ms"] = ask.deadline_ms
        wanted = states_of(self.offer)
        values = state.values if isinstance(state.values, dict) else {next(iter(wanted)): state.values}
        numbered = {key: np.asarray(values[key], np.float32) for key in wanted}
        goal = self._goal if isinstance(self.offer, Planner) else None
        key = next(self._keys)
        source = Source(
            number=key, epoch=self.epoch, frames=frames, t_state=state.t, absent=absent, goal=goal,
            dt=1 / self._fields.rate, begun=now,
        )  # fmt: skip
        self._running = _Running(key, source)
        self._cameras.use(frames)
        self._out.append(Begin(key, frames, numbered, self._fields.prompt, goal, settings, previous, delay))
