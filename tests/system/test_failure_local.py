"""Workers of the toy family that are lost, in one process on a manual clock: what ends, what lives, what is whole."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from models.toy.model import FAMILY
from mstar.bus.patience import Patience
from mstar.client import Emission, Request, RequestEnded, Session, Slice
from mstar.clock import ManualClock
from mstar.local import LocalSystem
from mstar.messages import SessionOpened
from mstar.placement import Placement, placement_of
from tests.system.shapes import SHAPES, shape
from tests.system.test_toy_local import ask, hear
from tests.system.toy import end_of, items, sound_of, text_of, tones, values

PATIENCE = Patience(silent=10, step=30, waiting=20, deaths=3)
EAR, MAIN = "worker.ear", "worker.main"


APART = placement_of(
    {
        "ranks": {"ear": {"threads": 1}, "main": {"threads": 1}},
        "families": {"toy": {"default": "main", "nodes": {"vad": "ear", "turn": "ear"}}},
    }
)


def build(placement: Placement) -> LocalSystem:
    return LocalSystem({"toy": FAMILY.graph({})}, placement=placement, clock=ManualClock(), patience=PATIENCE)


@pytest.fixture
def system() -> LocalSystem:
    return build(APART)


@pytest.fixture
def clock(system: LocalSystem) -> ManualClock:
    assert isinstance(system.clock, ManualClock)
    return system.clock


def start(session: Session, task: str, text: str, *before: tuple[str, str]) -> Request:
    request = session.start(task, ask(text, *before))
    request.credit("audio", 10**9)
    return request


def alone(task: str, text: str, *before: tuple[str, str]) -> list[Emission | RequestEnded]:
    """The answer of a system to which nothing happens."""
    other = LocalSystem({"toy": FAMILY.graph({})})
    request = start(other.open("toy"), task, text, *before)
    other.run()
    return request.drain()


def turns(system: LocalSystem, number: int) -> None:
    for _ in range(number):
        system.turn()


def wait(system: LocalSystem, clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1.0)
        system.turn()
        system.run()


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("after", [1, 30, 80])
def test_of_an_answer_that_is_cut_off_what_came_is_right_and_the_next_one_is_whole(name: str, after: int) -> None:
    system = build(shape(name))
    baseline = system.census()
    session = system.open("toy")
    whole = alone("answer_speech", "count")
    for worker in random.Random(after).sample(sorted(system.workers), min(3, len(system.workers))):
        request = start(session, "answer_speech", "count")
        turns(system, after)
        system.kill(worker)
        system.run()
        events = request.drain()
        end = end_of(events)
        assert text_of(whole).startswith(text_of(events))
        assert np.array_equal(sound_of(events), sound_of(whole)[: len(sound_of(events))])
        if end.status == "failed":
            assert end.code == "worker_lost"
            assert end.cause.startswith(f"{worker} ended with status -9")
        else:
            assert (end.status, len(sound_of(events))) == ("done", len(sound_of(whole)))
        request = start(session, "answer_speech", "count")
        system.run()
        again = request.drain()
        assert end_of(again).status == "done"
        assert np.array_equal(sound_of(again), sound_of(whole))
    system.close(session)
    assert system.census() == baseline


def test_a_worker_that_is_stopped_is_replaced_when_it_has_been_silent(system: LocalSystem, clock: ManualClock) -> None:
    session = system.open("toy")
    other = system.open("toy")
    request = start(session, "answer_speech", "long")
    turns(system, 10)
    listen = other.start("listen", positions={"mic": 0})
    system.freeze(MAIN)
    wait(system, clock, 9)
    assert not any(isinstance(event, RequestEnded) for event in request.drain())
    hear(other, tones("hello"))
    wait(system, clock, 2)
    assert end_of(request.drain()).code == "worker_lost"
    assert len(values(listen.drain(), "speech")) == len(items(tones("hello")))  # the other worker was never disturbed
    again = start(session, "answer_speech", "hello")
    system.run()
    assert end_of(again.drain()).status == "done"


def test_a_worker_whose_step_does_not_end_is_replaced(system: LocalSystem, clock: ManualClock) -> None:
    session = system.open("toy")
    system.wedge(MAIN)
    request = start(session, "answer_speech", "hello")
    wait(system, clock, 28)
    assert request.drain() == []
    wait(system, clock, 5)
    end = end_of(request.drain())
    assert (end.code, end.cause.startswith(f"{MAIN} has computed one step for 30 s")) == ("worker_lost", True)
    again = start(session, "answer_speech", "hello")
    system.run()
    assert end_of(again.drain()).status == "done"


def test_the_ear_is_asked_to_go_on_where_it_was_and_hears_everything_once(system: LocalSystem) -> None:
    session = system.open("toy")
    listen = session.start("listen", positions={"mic": 0})
    rows = items(tones("hello weather count"))
    session.feed("mic", 0, rows[:20], rows=True)
    system.run()
    heard = values(listen.drain(), "speech")
    system.replacing = False
    system.kill(EAR)
    system.run()
    assert end_of(listen.drain()).code == "worker_lost"
    session.feed("mic", 20, rows[20:], rows=True)
    listen = session.start("listen", positions={"mic": len(heard)})
    system.run()
    assert listen.drain() == []
    system.replace()
    system.run()
    heard += values(listen.drain(), "speech")
    calm = LocalSystem({"toy": FAMILY.graph({})})
    quiet = calm.open("toy")
    whole = quiet.start("listen", positions={"mic": 0})
    quiet.feed("mic", 0, rows, rows=True)
    calm.run()
    assert heard == values(whole.drain(), "speech")


def test_what_was_said_before_the_loss_can_still_be_heard_after_it(system: LocalSystem) -> None:
    session = system.open("toy")
    stop = hear(session, tones("hello name"))
    system.run()
    system.kill(MAIN)
    system.run()
    request = session.start("answer_audio_text", {"history": [], "tools": [], "audio": Slice("mic", 0, stop)})
    system.run()
    events = request.drain()
    assert values(events, "transcript")[0]["text"] == "hello name"
    assert text_of(events) == "you said hello name"


def test_a_slice_that_was_waiting_for_sound_gets_it_from_before_and_after(system: LocalSystem) -> None:
    session = system.open("toy")
    rows = items(tones("hello weather"))
    session.feed("mic", 0, rows[:5], rows=True)
    system.run()
    system.replacing = False
    system.kill(MAIN)
    system.run()
    request = session.start("transcribe", {"audio": Slice("mic", 0, len(rows))})
    session.feed("mic", 5, rows[5:12], rows=True)
    system.run()
    system.replace()
    turns(system, 2)
    session.feed("mic", 12, rows[12:], rows=True)
    system.run()
    events = request.drain()
    assert values(events, "transcript")[0]["text"] == "hello weather"


def test_text_that_is_written_while_the_worker_is_away_is_said_in_full(system: LocalSystem) -> None:
    baseline = system.census()
    session = system.open("toy")
    system.replacing = False
    system.kill(MAIN)
    system.run()
    request = session.start("speak")
    request.credit("audio", 10**9)
    for index, word in enumerate(("one ", "two ", "three ")):
        request.feed("written", index, word)
    system.run()
    request.feed("written", 3, "", cut=True)
    request.commit("written", 4)
    system.replace()
    system.run()
    events = request.drain()
    assert end_of(events).status == "done"
    assert len(sound_of(events)) == 3 * 6000
    system.close(session)
    assert system.census() == baseline


def test_what_is_asked_while_nobody_comes_back_is_refused_in_time(system: LocalSystem, clock: ManualClock) -> None:
    baseline = system.census()
    session = system.open("toy")
    system.replacing = False
    system.kill(MAIN)
    request = start(session, "answer_speech", "hello")
    wait(system, clock, 19)
    assert request.drain() == []
    wait(system, clock, 3)
    end = end_of(request.drain())
    assert (end.status, end.code) == ("failed", "not_ready")
    system.replace()
    system.run()
    again = start(session, "answer_speech", "hello")
    system.run()
    assert end_of(again.drain()).status == "done"
    system.close(session)
    assert system.census() == baseline


def test_too_much_that_waits_ends_the_request_with_not_ready(system: LocalSystem) -> None:
    baseline = system.census()
    session = system.open("toy")
    system.replacing = False
    system.kill(MAIN)
    system.run()
    request = session.start("speak")
    for index in range(5000):
        request.feed("written", index, "a")
    assert end_of(request.drain()).code == "not_ready"
    system.replace()
    system.run()
    system.close(session)
    assert system.census() == baseline


def test_an_end_whose_emissions_went_down_with_the_worker_is_a_loss(system: LocalSystem) -> None:
    """The worker had told the conductor that all is done; what it had to tell the client never came."""
    session = system.open("toy")
    request = start(session, "answer_text", "hello")
    client = system.bus.endpoint("other")
    lost = Swallower(system)
    system.run(lost.done_is_told)
    assert lost.swallowed
    system.kill(MAIN)
    system.run()
    end = end_of(request.drain())
    assert (end.status, end.code) == ("failed", "worker_lost")
    client.close()


class Swallower:
    """Drops the emissions that a worker sends to the server, until the conductor has told that the request is done."""

    def __init__(self, system: LocalSystem) -> None:
        self.swallowed = 0
        self._told = False
        self._post: Callable[..., None] = system.bus.post
        system.bus.post = self.post  # type: ignore[method-assign]

    def post(self, sender: str, to: str, message: object) -> None:
        if isinstance(message, Emission):
            self.swallowed += 1
            return
        self._told = self._told or isinstance(message, RequestEnded)
        self._post(sender, to, message)

    def done_is_told(self) -> bool:
        return self._told


def test_a_session_whose_worker_is_lost_while_it_opens_opens_when_it_is_back(system: LocalSystem) -> None:
    session = system.client.open_soon("toy")
    system.turn()  # the conductor has told the workers
    system.kill(MAIN)
    system.run()
    assert session.workers == (EAR, MAIN)
    request = start(session, "answer_speech", "hello")
    system.run()
    assert end_of(request.drain()).status == "done"


def test_replacements_that_are_lost_as_well_end_in_giving_up(system: LocalSystem) -> None:
    for _ in range(3):
        system.kill(MAIN)
        system.run()
    assert system.given_up == f"{MAIN} ended with status -9 (SIGKILL)"
    assert MAIN not in system.workers


def test_questions_to_a_lost_worker_are_answered_with_nothing(system: LocalSystem) -> None:
    session = system.open("toy")
    answers: list[object] = []
    system.freeze(MAIN)
    system.client.ask_then("census", answers.append, of=MAIN)
    system.kill(MAIN)
    system.run()
    assert answers == [None]
    assert not session.requests


def test_with_the_conductor_dead_everything_ends_at_once(system: LocalSystem) -> None:
    session = system.open("toy")
    request = start(session, "answer_speech", "long")
    turns(system, 30)
    system.client.lose("conductor ended with status -9 (SIGKILL)")
    end = end_of(request.drain())
    assert (end.status, end.code) == ("failed", "runtime_lost")
    late = session.start("answer_text", ask("hello"))
    assert end_of(late.drain()).code == "runtime_lost"
    session.feed("mic", 0, np.zeros(512, np.float32))  # nobody is there, and nobody minds


def test_reopening_says_from_where_streams_are_fed(system: LocalSystem) -> None:
    session = system.open("toy")
    history = FAMILY.card.conversation.mic_history if FAMILY.card.conversation else 0
    rows = np.zeros((100, 512), np.float32)
    at = 0
    while at < history + 250:
        session.feed("mic", at, rows, rows=True)
        at += len(rows)
    system.run()
    told: list[SessionOpened] = []
    post = system.bus.post

    def note(sender: str, to: str, message: object) -> None:
        if isinstance(message, SessionOpened) and to == MAIN:
            told.append(message)
        post(sender, to, message)  # type: ignore[arg-type]

    system.bus.post = note  # type: ignore[method-assign]
    system.kill(MAIN)
    system.run()
    [opened] = told
    assert at - history - len(rows) < opened.first["mic"] <= at - history
    request = session.start("transcribe", {"audio": Slice("mic", at - history, at)})
    system.run()
    assert end_of(request.drain()).status == "done"
