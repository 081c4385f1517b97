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
from msgspec import UNSET

from models.registry import Planner, Policy
from mstar.errors import Rejected
from mstar.tensors import Value
from server.robot.cameras import KEPT, Cameras
from server.robot.clock import Acting, RobotClock
from server.robot.commands import Begin, Cancel, Command, Count, End, Goal, Send, Show
from server.robot.events import (
    Ask,
    AskEnded,
    CameraBack,
    CameraFrozen,
    ClientEvent,
    Fault,
    Fields,
    Heard,
    Ping,
    Pong,
    Reset,
    ServerEvent,
    SessionCreated,
    SessionReset,
    SessionResumed,
    SessionStopped,
    SessionUpdate,
    SessionUpdated,
    Shown,
    State,
    Stop,
)
from server.robot.frames import Frame, Kind, Undeveloped
from server.robot.given import arrays, check_ask, check_state, updated
from server.robot.offers import Offer, cameras_of, described
from server.robot.replies import Latency, Source, reply
from server.robot.spoken import says
from server.robot.sync import Watch
from server.robot.videos import Videos

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
        self._watch = Watch()

    def _forget(self) -> None:
        """An episode begins, or goes on after an unknown time."""
        self._see_nothing()
        self._videos = Videos(lambda: self._out.append(Count("frames", "dropped")))
        self._given_up: frozenset[str] = frozenset()  # cameras that the last chunk did without: not waited for
        self._latency = Latency()
        self._asked: _Asked | None = None
        self._running: _Running | None = None

    def _see_nothing(self) -> None:
        """Nothing that has a time is known."""
        self._cameras = Cameras(lambda fate: self._out.append(Count("frames", fate)))
        self._state: State | None = None
        self._acting: Acting | None = None

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
                self._put(frame, now)
        return self._done(now)

    def seen(self, camera: str, taken: float, shot: Undeveloped, now: float) -> list[Command]:
        """A picture of a camera's video, captured at the server's time `taken`. Pictures are numbered as they come."""
        frame = self._videos.seen(camera, taken, shot, self._clock)
        if frame is not None:
            self._put(frame, now)
        return self._done(now)

    def heard(self, text: str, now: float) -> list[Command]:
        """Somebody said something: a word to stop by ends the ask, and the epoch of what the robot was given."""
        self._send(Heard(text))
        said = says(text, self._fields.stop)
        if said:
            self._end_ask("stopped")
            self._acting = None
            self.epoch += 1
            self._send(SessionStopped(self.epoch, said))
        return self._done(now)

    def wall(self, stamp: float) -> float | None:
        """The server's time at which the robot's wall clock said so, if it has told that clock."""
        return self._clock.ours(stamp)

    def congested(self, congested: bool, now: float) -> list[Command]:
        """Whether the client has stopped reading: then nothing new is begun."""
        self._congested = congested
        return self._done(now)

    def _take(self, event: ClientEvent, now: float) -> None:
        match event:
            case SessionUpdate(session=fields):
                self._update(fields)
            case State():
                check_state(event, self.offer)
                if self._state is None or event.t >= self._state.t:
                    self._state = event
            case Ask():
                check_ask(event, self._fields, self.offer, goal=self._goal is not None)
                self._end_ask("superseded")
                self._asked = _Asked(event, now)
            case Stop():
                self._end_ask("stopped")
            case Reset():
                self._end_ask("reset")
                self.epoch += 1
                self._forget()
                self._send(SessionReset(self.epoch))
            case Pong(id=number, t=t, wall=wall):
                sent = self._sent.pop(number, None)
                if sent is not None:
                    if self._clock.ponged(sent, t, now, wall):
                        self._clock_was_set(now)
                    for frame in self._videos.dated(self._clock):
                        self._put(frame, now)
                    self._next_ping = now if self._clock.pings < QUICK_PINGS else now + PING_SECONDS

    def _clock_was_set(self, now: float) -> None:
        """What was stamped before says nothing any more; an ask waits for what comes after."""
        self._cancel("superseded")
        self._see_nothing()
        if self._asked is not None:
            self._asked.since, self._asked.told = now, False

    def _update(self, fields: Fields) -> None:
        """All of it or nothing. Raises Rejected."""
        self._fields = updated(self._fields, fields, self.offer)
        if fields.goal is not UNSET and (self._goal is None or self._goal.name != fields.goal):
            self._goal = Goal(fields.goal, None) if fields.goal else None
        self._send(SessionUpdated(self.shown))

    def _put(self, frame: Frame, now: float) -> None:
        if self._watch.arrived(frame.name, now):
            self._send(CameraBack(frame.name))
        if self._cameras.put(frame, kept=1 if self._fields.sync_ms is None else KEPT):
            self._show(frame)

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
        return min(self._next_ping, self._expires, wait, self._watch.due(self._patience))

    def tick(self, now: float) -> list[Command]:
        if now >= self._expires:
            self._send(Fault("session_expired", f"A session lives {self.identity.seconds:.0f} s."))
            self._out.append(End(1001, "session_expired"))
            self._expires = math.inf
        for camera in self._watch.stopped(self._patience, now):
            self._send(CameraFrozen(camera))
        return self._done(now)

    @property
    def _patience(self) -> float:
        """How long a camera may be still before it is told."""
        return math.inf if self._fields.frozen_ms is None else self._fields.frozen_ms / 1000

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

    def _cancel(self, reason: str) -> None:
        """What is in flight is not wanted any more."""
        if self._running is not None:
            self._out.append(Cancel(self._running.key))
            self._out.append(Count("chunks", reason))
            self._running = None

    def _end_ask(self, reason: str) -> None:
        self._cancel(reason)
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
        together = self._together(frames)
        if not frames or (absent and self._fields.missing == "report"):
            if waited:
                self._report(asked, absent or ["clock.pong" if self._videos.waiting else "a frame"])
        elif self._state is None:
            if waited:
                self._report(asked, ["state"])
        elif waited or (self._given_up.issuperset(absent) and together is not None):
            self._given_up = frozenset(absent)
            self._start(asked, together or frames, tuple(absent), robot or 0.0, now)

    def _together(self, frames: dict[str, Frame]) -> dict[str, Frame] | None:
        """The newest set of these cameras; without a window for sets, their newest frames."""
        window = self._fields.sync_ms
        return frames if window is None else self._cameras.together(frames, window / 1000)

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
        goal = self._goal if isinstance(self.offer, Planner) else None
        key = next(self._keys)
        source = Source(
            number=key, epoch=self.epoch, frames=frames, t_state=state.t, absent=absent, goal=goal,
            dt=1 / self._fields.rate, begun=now,
        )  # fmt: skip
        self._running = _Running(key, source)
        self._cameras.use(frames)
        self._out.append(
            Begin(key, frames, arrays(state, self.offer), self._fields.prompt, goal, settings, previous, delay)
        )
