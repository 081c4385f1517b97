"""The conductor when workers are lost: who is told what, what ends, what waits, and when it gives up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from models.toy.model import FAMILY
from mstar.bus.patience import Patience
from mstar.conductor.conductor import Conductor
from mstar.messages import (
    LAUNCHER,
    Ask,
    BeginRequest,
    CloseSession,
    EndRequest,
    GiveUp,
    Interrupt,
    Message,
    OpenSession,
    Progress,
    Refused,
    ReopenSession,
    ReplaceWorker,
    RequestEnded,
    SessionOpened,
    StartRequest,
    WalkDone,
    WorkerDown,
    WorkerExited,
    WorkerReady,
    WorkerUp,
)
from mstar.placement import placement_of

EAR, MAIN = "worker.ear", "worker.main"
PLACEMENT = placement_of(
    {
        "ranks": {"ear": {"threads": 1}, "main": {"threads": 1}},
        "families": {"toy": {"default": "main", "nodes": {"vad": "ear", "turn": "ear"}}},
    }
)
PATIENCE = Patience(silent=10, step=60, loading=100, waiting=20, calm=30, deaths=3)
GRAPH = FAMILY.graph({})
TEXT: dict[str, Any] = {"history": [], "tools": []}
DIED = "ended with status -9 (SIGKILL)"

Out = Sequence[tuple[str, Message]]


class Stage:
    """A conductor with everybody's part played by the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.conductor = Conductor({"toy": GRAPH}, {"toy": PLACEMENT.place("toy", GRAPH)}, PATIENCE)
        self.lives = {EAR: 1, MAIN: 1}
        for name in self.lives:
            self.ready(name)
        self.tick()

    def say(self, message: Message) -> Out:
        return self.conductor.handle(message, self.now)

    def ready(self, name: str) -> Out:
        return self.say(WorkerReady(name, "toy", 7, self.lives[name]))

    def progress(self, name: str, steps: int = 0, *, busy: bool = False) -> None:
        assert self.say(Progress(name, steps, busy, self.lives[name])) == []

    def tick(self, seconds: float = 0.0) -> Out:
        self.now += seconds
        return self.conductor.tick(self.now)

    def wait(self, seconds: int, *moving: str) -> Out:
        """Time passes, second by second, while some report that they are there."""
        out: list[tuple[str, Message]] = []
        for _ in range(seconds):
            for name in moving:
                self.progress(name)
            out += self.tick(1.0)
        return out

    def exit(self, name: str) -> Out:
        life = self.lives[name]
        self.lives[name] += 1
        return self.say(WorkerExited(name, life, DIED))

    def open(self, session: str = "s") -> Out:
        return self.say(OpenSession(session, "toy", "server"))

    def start(self, number: int = 0, task: str = "answer_text", session: str = "s") -> Out:
        return self.say(StartRequest(session, f"{session}.{number}", task, TEXT if "answer" in task else {}))

    def reopen(self, name: str, session: str = "s") -> Out:
        return self.say(ReopenSession(session, name, self.lives[name], {"mic": 5}))

    def told(self, what: str) -> Any:
        [(_, answer)] = self.say(Ask(what, "server", 1))
        return answer.value  # type: ignore[union-attr]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def of(out: Out, kind: type[Any]) -> list[tuple[str, Any]]:
    return [(to, message) for to, message in out if isinstance(message, kind)]


def test_a_worker_that_ends_is_replaced_and_all_are_told_before_its_requests_end(stage: Stage) -> None:
    stage.open()
    stage.start(0)
    stage.start(1, "listen")
    out = stage.exit(MAIN)
    cause = f"{MAIN} {DIED}"
    assert out[:3] == [
        (LAUNCHER, ReplaceWorker(MAIN, 2, cause)),
        ("server", WorkerDown(MAIN, cause)),
        (EAR, WorkerDown(MAIN, cause)),
    ]
    [(to, ended)] = of(out, RequestEnded)
    assert (to, ended.request, ended.status, ended.code) == ("server", "s.0", "failed", "worker_lost")
    assert ended.cause.startswith(cause)
    assert not [to for to, _ in out if to == MAIN]
    assert stage.told("census") == {"sessions": 1, "requests": 1, "waiting": 0}  # the listening one goes on
    assert stage.told("counters")["lost_requests"] == 1
    assert stage.told("counters")["restarts"] == {EAR: 0, MAIN: 1}


def test_workers_of_a_request_that_were_not_lost_let_go_of_it(stage: Stage) -> None:
    stage.open()
    stage.say(StartRequest("s", "s.0", "listen"))
    out = stage.exit(EAR)
    assert of(out, RequestEnded)[0][1].request == "s.0"
    assert of(out, EndRequest) == []  # it ran there only
    wide = placement_of(
        {"ranks": {"a": {}, "b": {}}, "families": {"toy": {"default": "a", "nodes": {"tone": "b", "vocoder": "b"}}}}
    )
    conductor = Conductor({"toy": GRAPH}, {"toy": wide.place("toy", GRAPH)}, PATIENCE)
    for name in ("worker.a", "worker.b"):
        conductor.handle(WorkerReady(name, "toy", 7), 0)
    conductor.handle(OpenSession("s", "toy", "server"), 0)
    conductor.handle(StartRequest("s", "s.0", "answer_speech", TEXT), 0)
    out = conductor.handle(WorkerExited("worker.b", 1, DIED), 0)
    assert of(out, EndRequest) == [("worker.a", EndRequest("s.0"))]


def test_silence_and_a_step_without_end_are_noticed(stage: Stage) -> None:
    assert of(stage.wait(9, EAR), ReplaceWorker) == []
    [(_, replaced)] = of(stage.wait(1, EAR), ReplaceWorker)
    assert (replaced.worker, replaced.life, replaced.cause) == (MAIN, 2, f"{MAIN} has said nothing for 10 s")
    out: list[tuple[str, Message]] = []
    for _ in range(62):
        stage.progress(EAR, 4, busy=True)
        out += stage.tick(1.0)
    [(_, replaced)] = of(out, ReplaceWorker)
    assert (replaced.worker, replaced.cause) == (EAR, f"{EAR} has computed one step for 60 s")


def test_steps_that_go_on_are_no_wedge(stage: Stage) -> None:
    for step in range(200):
        stage.progress(EAR, step, busy=True)
        stage.progress(MAIN)
        assert stage.tick(1.0) == []


def test_time_in_which_the_conductor_itself_was_stopped_does_not_count(stage: Stage) -> None:
    stage.wait(5, EAR, MAIN)
    assert stage.tick(300.0) == []
    assert stage.wait(5) == []


def test_what_an_earlier_life_says_is_not_heard(stage: Stage) -> None:
    stage.wait(1, EAR, MAIN)
    stage.exit(MAIN)
    assert stage.say(WorkerExited(MAIN, 1, DIED)) == []
    assert stage.say(WorkerReady(MAIN, "toy", 7, 1)) == []
    stage.say(Progress(MAIN, 9, False, 1))
    [_, main] = stage.told("workers")
    assert (main["ready"], main["steps"], main["restarts"]) == (False, 0, 1)


def test_sessions_are_opened_anew_where_their_client_will_feed_them_and_what_waited_begins(stage: Stage) -> None:
    [(_, opened), _] = of(stage.open(), SessionOpened)
    stage.exit(MAIN)
    assert stage.start(0) == []
    assert of(stage.start(1, "listen"), BeginRequest)  # the other worker is there
    stage.tick(3.0)
    assert stage.ready(MAIN) == [(LAUNCHER, WorkerUp(MAIN, 2, 3.0)), ("server", WorkerUp(MAIN, 2, 3.0))]
    assert stage.start(2) == []  # the worker is there, and does not know the session
    out = stage.reopen(MAIN)
    [(to, again)] = of(out, SessionOpened)
    assert (to, again.first, again.workers, again.history) == (MAIN, {"mic": 5}, opened.workers, opened.history)
    assert [(to, each.request) for to, each in of(out, BeginRequest)] == [(MAIN, "s.0"), (MAIN, "s.2")]
    assert stage.reopen(MAIN) == []
    assert stage.told("counters")["recovery_seconds"] == {EAR: 0.0, MAIN: 3.0}
    assert stage.told("census") == {"sessions": 1, "requests": 3, "waiting": 0}


def test_an_answer_to_an_earlier_life_opens_nothing(stage: Stage) -> None:
    stage.open()
    stage.exit(MAIN)
    stage.ready(MAIN)
    late = ReopenSession("s", MAIN, 2, {"mic": 5})
    stage.exit(MAIN)
    assert stage.say(late) == []
    stage.ready(MAIN)
    assert stage.say(late) == []
    assert of(stage.reopen(MAIN), SessionOpened)


def test_what_waits_too_long_is_refused_with_not_ready(stage: Stage) -> None:
    stage.open()
    stage.exit(MAIN)
    stage.start(0)
    assert stage.open("t") == []
    assert stage.wait(19, EAR) == []
    out = stage.wait(1, EAR)
    refused = [message for _, message in of(out, Refused)]
    assert [(each.session, each.request, each.code) for each in refused] == [
        ("s", "s.0", "not_ready"),
        ("t", "", "not_ready"),
    ]
    assert {to for to, _ in of(out, Refused)} == {"server"}
    assert of(out, EndRequest)  # what was sent ahead of the request is let go of
    assert stage.told("census")["waiting"] == 0


def test_a_session_that_waits_is_opened_when_the_worker_is_there(stage: Stage) -> None:
    stage.exit(MAIN)
    assert stage.open() == []
    out = stage.ready(MAIN)
    assert [to for to, _ in of(out, SessionOpened)] == [EAR, MAIN]


def test_a_session_that_waits_may_be_asked_already(stage: Stage) -> None:
    stage.exit(MAIN)
    stage.open()
    assert stage.start(0) == []
    stage.start(1)
    assert of(stage.say(Interrupt("s.1")), RequestEnded) == [("server", RequestEnded("s.1", "cancelled"))]
    out = stage.ready(MAIN)
    assert [each.request for _, each in of(out, BeginRequest)] == ["s.0"]
    stage.exit(MAIN)
    stage.open("t")
    stage.start(0, session="t")
    refused = [message for _, message in of(stage.wait(20, EAR), Refused)]
    assert [(each.session, each.request) for each in refused] == [("t", ""), ("t", "t.0")]


def test_a_new_session_takes_the_replica_that_is_there() -> None:
    ranks = {"ranks": {"main": {}, "s0": {}, "s1": {}}, "oversubscribe": True}
    replicas = placement_of({**ranks, "families": {"toy": {"default": "main", "nodes": {"vocoder": ["s0", "s1"]}}}})
    conductor = Conductor({"toy": GRAPH}, {"toy": replicas.place("toy", GRAPH)}, PATIENCE)
    for name in (MAIN, "worker.s0", "worker.s1"):
        conductor.handle(WorkerReady(name, "toy", 7), 0)
    conductor.handle(WorkerExited("worker.s0", 1, DIED), 0)
    for number in range(5):
        out = conductor.handle(OpenSession(f"s{number}", "toy", "server"), 0)
        assert {to for to, _ in of(out, SessionOpened)} == {MAIN, "worker.s1"}


def test_what_waits_can_be_interrupted_and_closed(stage: Stage) -> None:
    stage.open()
    stage.exit(MAIN)
    stage.start(0)
    out = stage.say(Interrupt("s.0"))
    assert of(out, RequestEnded) == [("server", RequestEnded("s.0", "cancelled"))]
    stage.start(1)
    stage.open("t")
    stage.say(CloseSession("t"))
    stage.say(CloseSession("s"))
    assert stage.told("census") == {"sessions": 0, "requests": 0, "waiting": 0}
    assert of(stage.ready(MAIN), SessionOpened) == []
    assert stage.say(Interrupt("s.0")) == []


def test_no_more_than_a_bound_waits(stage: Stage) -> None:
    stage.open()
    stage.exit(MAIN)
    refused = [stage.start(number) for number in range(1100)]
    assert stage.told("census")["waiting"] == 1024
    assert len([out for out in refused if of(out, Refused)]) == 1100 - 1024


def test_replacements_that_end_in_vain_end_it_all(stage: Stage) -> None:
    stage.open()
    assert of(stage.exit(MAIN), ReplaceWorker)
    assert of(stage.exit(MAIN), ReplaceWorker)  # while it loaded
    out = stage.exit(MAIN)
    assert of(out, ReplaceWorker) == []
    assert of(out, GiveUp) == [(LAUNCHER, GiveUp(f"{MAIN} {DIED}"))]


def test_a_replacement_that_never_gets_ready_is_one_in_vain(stage: Stage) -> None:
    stage.exit(MAIN)
    assert of(stage.wait(99, EAR), ReplaceWorker) == []
    [(_, replaced)] = of(stage.wait(1, EAR), ReplaceWorker)
    assert (replaced.life, replaced.cause) == (3, f"{MAIN} was not ready after 100 s")


@pytest.mark.parametrize("proof", ["a step", "time"])
def test_workers_that_have_worked_may_be_lost_any_number_of_times(stage: Stage, proof: str) -> None:
    for _ in range(10):
        if proof == "a step":
            stage.progress(MAIN, 1)
        else:
            stage.wait(31, EAR, MAIN)
        assert of(stage.exit(MAIN), GiveUp) == []
        stage.ready(MAIN)


def test_late_ends_of_walks_of_a_lost_worker_are_dropped(stage: Stage) -> None:
    stage.open()
    stage.start(0)
    stage.exit(MAIN)
    assert stage.say(WalkDone("s.0", "lm", "prefill")) == []


def test_before_everything_has_loaded_once_sessions_are_refused_at_once() -> None:
    conductor = Conductor({"toy": GRAPH}, {"toy": PLACEMENT.place("toy", GRAPH)}, PATIENCE)
    [(_, refused)] = conductor.handle(OpenSession("s", "toy", "server"), 0)
    assert isinstance(refused, Refused)
    assert refused.code == "not_ready"
    for second in range(1, 500):
        assert conductor.tick(second) == []  # loading the first time takes what it takes
