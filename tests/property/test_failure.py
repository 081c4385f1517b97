"""Whatever is interrupted, closed or lost, and whatever comes late: each request ends once, nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import numpy as np
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from models.toy.model import FAMILY
from mstar.bus.patience import Patience
from mstar.client import Emission, Request, RequestEnded, Session, Slice
from mstar.clock import ManualClock
from mstar.local import LocalSystem
from mstar.messages import (
    BeginRequest,
    BeginWalk,
    Commit,
    Credit,
    EndRequest,
    Feed,
    Interrupt,
    Message,
    Progress,
    ReopenSession,
    SessionClosed,
    StartRequest,
    StepFailed,
    WalkDone,
    WorkerDown,
    WorkerExited,
    WorkerReady,
)
from tests.system.shapes import SHAPES, shape
from tests.system.toy import items, sound_of, text_of, tones

PATIENCE = Patience(silent=10, step=30, waiting=20, deaths=1000)
TASKS = ("answer_text", "answer_speech", "answer_audio_speech", "transcribe", "speak", "listen", "warm")
TEXTS = ("hello", "count", "fail", "sing")
SPOKEN = items(tones("hello count"))
STEPS = st.one_of(
    st.tuples(st.just("turn"), st.integers(1, 60)),
    st.tuples(st.just("open"), st.just(0)),
    st.tuples(st.just("start"), st.tuples(st.sampled_from(TASKS), st.sampled_from(TEXTS), st.integers(0, 3))),
    st.tuples(st.just("feed"), st.integers(0, 3)),
    st.tuples(st.just("interrupt"), st.integers(0, 7)),
    st.tuples(st.just("close"), st.integers(0, 3)),
    st.tuples(st.just("kill"), st.integers(0, 5)),
    st.tuples(st.just("freeze"), st.integers(0, 5)),
    st.tuples(st.just("wedge"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.integers(1, 12)),
)


@cache
def whole(task: str, text: str) -> tuple[str, bytes]:
    """Text and sound of an answer to which nothing happens."""
    system = LocalSystem({"toy": FAMILY.graph({})})
    session = system.open("toy")
    session.feed("mic", 0, SPOKEN, rows=True)
    request = begin(session, task, text)
    system.run()
    events = request.drain()
    return text_of(events), sound_of(events).tobytes()


def begin(session: Session, task: str, text: str) -> Request:
    inputs: dict[str, Any] = {}
    if task.startswith(("answer", "warm")):
        inputs = {"history": [{"role": "user", "content": text}], "tools": []}
    if task in ("answer_audio_speech", "transcribe"):
        inputs["audio"] = Slice("mic", 0, len(SPOKEN))
    request = session.start(task, inputs, positions={"mic": 0} if task == "listen" else None)
    request.credit("audio", 10**9)
    if task == "speak":
        request.feed("written", 0, text)
        request.feed("written", 1, "", cut=True)
        request.commit("written", 2)
    return request


@dataclass
class Asked:
    """A request, all that came of it, and whether it was interrupted."""

    task: str
    text: str
    request: Request
    events: list[Emission | RequestEnded] = field(default_factory=list)
    stopped: bool = False

    @property
    def ends(self) -> list[RequestEnded]:
        return [each for each in self.events if isinstance(each, RequestEnded)]


class Play:
    def __init__(self, name: str) -> None:
        self.clock = ManualClock()
        graphs = {"toy": FAMILY.graph({})}
        self.system = LocalSystem(graphs, placement=shape(name), clock=self.clock, patience=PATIENCE)
        self.names = sorted(self.system.workers)
        self.baseline = self.system.census()
        self.sessions: list[Session] = []
        self.fed: dict[str, int] = {}
        self.requests: list[Asked] = []

    def step(self, what: str, which: Any) -> None:
        act: dict[str, Callable[[Any], None]] = {
            "turn": self.turn,
            "open": self.open,
            "start": self.start,
            "feed": self.feed,
            "interrupt": self.interrupt,
            "close": self.close,
            "wait": self.wait,
        }
        if what in act:
            act[what](which)
        else:
            name = self.names[which % len(self.names)]
            if name in self.system.workers:
                getattr(self.system, what)(name)
        self.drain()

    def turn(self, number: int) -> None:
        for _ in range(number):
            self.system.turn()

    def open(self, _: int) -> None:
        self.sessions.append(self.system.client.open_soon("toy"))
        self.turn(3)

    def start(self, which: tuple[str, str, int]) -> None:
        task, text, number = which
        if (session := self.session(number)) is not None:
            self.requests.append(Asked(task, text, begin(session, task, text)))

    def feed(self, number: int) -> None:
        if (session := self.session(number)) is not None:
            at = self.fed.get(session.id, 0)
            rows = SPOKEN[at : at + 20] if at < len(SPOKEN) else np.zeros((20, 512), np.float32)
            session.feed("mic", at, rows, rows=True)
            self.fed[session.id] = at + len(rows)

    def interrupt(self, number: int) -> None:
        if self.requests:
            asked = self.requests[number % len(self.requests)]
            asked.stopped = True
            asked.request.interrupt()

    def close(self, number: int) -> None:
        if (session := self.session(number)) is not None:
            self.sessions.remove(session)
            self.system.client.close_session(session)

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1.0)
            self.turn(5)

    def session(self, number: int) -> Session | None:
        known = [session for session in self.sessions if session.outputs]
        return known[number % len(known)] if known else None

    def drain(self) -> None:
        for asked in self.requests:
            asked.events.extend(asked.request.drain())

    def settle(self) -> None:
        """Everything that stands still is given something to do, and noticed; what waits for more sound is ended."""
        for name in self.names:
            self.system.client.ask_then("census", lambda _: None, of=name)
        self.wait(60)
        self.system.run()
        self.drain()
        for asked in self.requests:
            if not asked.ends:
                asked.request.interrupt()
        self.system.run()
        self.drain()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(SHAPES)), st.lists(STEPS, min_size=4, max_size=30))
def test_interrupts_disconnects_and_losses_leave_nothing(name: str, steps: list[tuple[str, Any]]) -> None:
    play = Play(name)
    play.step("open", 0)
    for what, which in steps:
        play.step(what, which)
    play.settle()
    lost = 0
    for asked in play.requests:
        [end] = asked.ends
        assert asked.events[-1] is end
        said, sound = whole(asked.task, asked.text)
        assert said.startswith(text_of(asked.events))
        assert sound.startswith(sound_of(asked.events).tobytes())
        if end.status == "done" and not asked.stopped:
            assert (text_of(asked.events), sound_of(asked.events).tobytes()) == (said, sound)
        assert end.code or end.status != "failed"
        lost += end.code == "worker_lost"
    event(f"lost requests {min(lost, 3)}")
    for session in play.sessions:
        play.system.client.close_session(session)
    play.system.run()
    assert play.system.census() == play.baseline


# -------------------------------------------------------------------------------------------------- stray messages

SESSIONS = st.sampled_from(["here", "gone", "never"])
REQUESTS = st.sampled_from(["here.0", "here.1", "here.9", "gone.0", "never.0", "odd"])
PARTITIONS = st.sampled_from(["lm", "words", "ear", "nowhere"])
WALKS = st.sampled_from(["prefill", "decode", "words", "listen"])
STREAMS = st.sampled_from(["mic", "written", "word", "token", "nothing"])
COUNTS = st.integers(0, 5)
TO_WORKER = st.one_of(
    st.builds(lambda s, r, x, i: Feed(s, r, x, i, np.zeros(512, np.float32)), SESSIONS, REQUESTS, STREAMS, COUNTS),
    st.builds(lambda s, x, i: Feed(s, "", x, i, np.zeros(512, np.float32)), SESSIONS, STREAMS, COUNTS),
    st.builds(Commit, SESSIONS, REQUESTS, STREAMS, COUNTS),
    st.builds(Credit, REQUESTS, st.sampled_from(["audio", "nothing"]), COUNTS, COUNTS),
    st.builds(BeginRequest, SESSIONS.filter(lambda name: name != "here"), REQUESTS, st.just("answer_text"), COUNTS),
    st.builds(BeginWalk, REQUESTS.filter(lambda name: name != "here.0"), PARTITIONS, WALKS),
    st.builds(EndRequest, REQUESTS.filter(lambda name: name != "here.0")),
    st.builds(SessionClosed, SESSIONS.filter(lambda name: name != "here")),
    st.just(WorkerDown("worker.gone", "why")),
)
TO_CONDUCTOR = st.one_of(
    st.builds(WalkDone, REQUESTS.filter(lambda name: name != "here.0"), PARTITIONS, WALKS, st.booleans()),
    st.builds(StepFailed, REQUESTS.filter(lambda name: name != "here.0"), st.just("node"), st.just("cause")),
    st.builds(Interrupt, REQUESTS.filter(lambda name: name != "here.0")),
    st.builds(StartRequest, st.sampled_from(["gone", "never"]), REQUESTS, st.just("answer_text")),
    st.builds(ReopenSession, SESSIONS, st.sampled_from(["worker.main", "worker.x"]), COUNTS),
    st.builds(WorkerReady, st.sampled_from(["worker.main", "worker.x"]), st.just("toy"), COUNTS, COUNTS),
    st.builds(Progress, st.sampled_from(["worker.main", "worker.x"]), COUNTS, st.booleans(), COUNTS),
    st.builds(WorkerExited, st.sampled_from(["worker.main", "worker.x"]), st.integers(2, 5), st.just("why")),
)


INWARD = [
    *[Feed("here", "here.0", "mic", 0, np.zeros(512, np.float32))] * 4,
    *[Feed("here", "here.0", "word", 0, np.zeros(512, np.float32)), Commit("here", "here.0", "word", 0)],
]
"""Into a stream that a node feeds, while it does."""


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(INWARD, [], 0)
@given(st.lists(TO_WORKER, max_size=400), st.lists(TO_CONDUCTOR, max_size=100), st.integers(0, 1000))
def test_late_and_unknown_messages_are_dropped_and_kept_nowhere(
    to_worker: list[Message], to_conductor: list[Message], seed: int
) -> None:
    system = LocalSystem({"toy": FAMILY.graph({})})
    baseline = system.census()
    here = system.client.open_soon("toy", session="here")
    gone = system.client.open_soon("toy", session="gone")
    system.run()
    system.client.close_session(gone)
    request = begin(here, "answer_speech", "count")
    storm = [("worker.main", each) for each in to_worker] + [("conductor", each) for each in to_conductor]
    Random(seed).shuffle(storm)
    for to, message in storm:
        system.client.send(to, message)
        system.turn()
    system.run()
    events = request.drain()
    assert (text_of(events), sound_of(events).tobytes()) == whole("answer_speech", "count")
    system.client.close_session(here)
    system.run()
    assert system.census() == baseline
