from __future__ import annotations

import numpy as np
import pytest

from server.robot.commands import Cancel, End, Show
from server.robot.core import WAIT_MS
from server.robot.events import (
    AskEnded,
    Chunk,
    ChunkLate,
    Fault,
    Pong,
    Reset,
    SessionCreated,
    SessionReset,
    SessionResumed,
    SessionUpdated,
    Stop,
)
from server.robot.frames import Frame, Kind
from tests.unit.robot.robots import AHEAD, PLANNER, Bench, shot


def test_a_chunk_says_what_it_was_made_from_and_when() -> None:
    bench = Bench()
    created = bench.last(SessionCreated).session
    assert (created.epoch, created.resume, created.rate) == (1, "token", 10.0)
    frame = bench.ready()
    bench.ask(id="a")
    assert dict(bench.begun[0].frames) == {"images/left": frame}
    bench.pass_time(0.2)
    bench.answer()
    chunk = bench.last(Chunk)
    assert (chunk.ask, chunk.epoch, chunk.obs_seq) == ("a", 1, {"images/left": frame.seq})
    assert chunk.t_capture == {"images/left": AHEAD}
    assert chunk.age_ms == pytest.approx(200)
    assert len(chunk.actions) == 10
    assert bench.last(AskEnded) == AskEnded("a", "done")


def test_a_robot_that_stands_begins_with_the_first_row() -> None:
    bench = Bench()
    bench.ready()
    bench.ask()
    bench.pass_time(0.35)
    bench.answer()
    first = bench.last(Chunk)
    assert first.first == 0
    assert first.t_valid_from == pytest.approx(AHEAD + 0.35)
    bench.pass_time(5.0)
    bench.frame()
    bench.ask()
    bench.pass_time(0.3)
    bench.answer()
    assert bench.last(Chunk).first == 0


def test_a_robot_that_acts_gets_rows_by_time_and_none_that_are_over() -> None:
    bench = Bench()
    bench.ready()
    bench.ask()
    bench.answer()
    bench.pass_time(0.2)
    frame = bench.frame()
    bench.ask()
    bench.pass_time(0.25)
    bench.answer()
    chunk = bench.last(Chunk)
    assert (chunk.t_valid_from, chunk.first) == (frame.t_capture, 3)
    now = AHEAD + bench.now
    assert chunk.t_valid_from + chunk.first * chunk.dt >= now > chunk.t_valid_from + (chunk.first - 1) * chunk.dt


def test_a_chunk_that_is_over_is_not_given_and_counted() -> None:
    bench = Bench()
    bench.ready()
    bench.ask()
    bench.answer(rows=30)
    bench.frame()
    bench.ask(id="late")
    bench.pass_time(1.2)
    bench.answer(rows=10)
    late = bench.last(ChunkLate)
    assert late.ask == "late"
    assert late.late_ms == pytest.approx(200)
    assert len(bench.all(Chunk)) == 1
    assert bench.counts[("chunks", "late")] == 1


def test_standing_can_be_said() -> None:
    bench = Bench()
    bench.ready()
    bench.ask()
    bench.answer(rows=30)
    bench.frame()
    bench.ask(standing=True)
    bench.pass_time(0.4)
    bench.answer()
    assert bench.last(Chunk).first == 0
    assert bench.last(Chunk).t_valid_from == pytest.approx(AHEAD + 0.4)


def test_the_newest_frame_wins_and_the_others_are_counted() -> None:
    bench = Bench()
    bench.state([0, 0, 0])
    for _ in range(5):
        bench.frame()
    newest = bench.frame()
    bench.frame(seq=2)
    bench.ask()
    assert bench.begun[0].frames["images/left"] == newest
    assert bench.counts == {("frames", "dropped"): 5, ("frames", "disordered"): 1, ("frames", "used"): 1}


def test_an_ask_waits_for_a_fresh_frame_of_every_camera_but_not_for_ever() -> None:
    bench = Bench(cameras=["images/left", "images/right"])
    bench.ready()
    bench.ask(id="a")
    assert not bench.begun
    bench.pass_time(0.3)
    both = bench.frame("images/right")
    assert bench.begun[0].frames["images/right"] == both
    bench.answer()
    bench.pass_time(0.6)
    bench.frame("images/left")
    bench.ask(id="b")
    assert len(bench.begun) == 1
    bench.pass_time(WAIT_MS / 1000 - 0.1)
    bench.frame("images/left")
    bench.pass_time(0.1)
    assert list(bench.begun[1].frames) == ["images/left"]
    bench.answer()
    assert bench.last(Chunk).missing == ["images/right"]


def test_a_camera_that_is_frozen_is_waited_for_once() -> None:
    bench = Bench(cameras=["images/left", "images/right"])
    bench.ready()
    bench.ask(repeat=True)
    bench.pass_time(WAIT_MS / 1000 - 0.1)
    bench.frame()
    bench.pass_time(0.1)
    assert len(bench.begun) == 1
    for number in range(2, 5):
        bench.answer()
        bench.frame()
        assert len(bench.begun) == number
    bench.frame("images/right")
    bench.answer()
    bench.frame()
    assert set(bench.begun[-1].frames) == {"images/left", "images/right"}


def test_who_sends_no_frames_is_told_so() -> None:
    bench = Bench()
    bench.state([0, 0, 0])
    bench.ask(id="a")
    bench.pass_time(WAIT_MS / 1000)
    assert bench.last(Fault).code == "no_fresh_frame"
    assert bench.last(AskEnded) == AskEnded("a", "failed")
    bench.frame()
    bench.ask(repeat=True)
    bench.answer()
    bench.pass_time(WAIT_MS / 1000)
    assert bench.last(Fault).param == "images/left"
    told = len(bench.all(Fault))
    bench.pass_time(10)
    assert len(bench.all(Fault)) == told
    bench.frame()
    assert len(bench.begun) == 2


def test_a_state_is_needed_and_checked() -> None:
    bench = Bench()
    bench.state([0, 0])
    assert "state has 2 values, not 3" in bench.last(Fault).message
    bench.state({"stat": [0, 0, 0]})
    assert bench.last(Fault).param == "values.stat"
    bench.frame()
    bench.ask()
    bench.pass_time(WAIT_MS / 1000 - 0.1)
    bench.frame()
    bench.pass_time(0.1)
    assert bench.last(Fault).param == "state"


def test_repeated_asks_take_each_frame_once() -> None:
    bench = Bench()
    bench.ready()
    bench.ask(repeat=True)
    bench.answer()
    assert len(bench.begun) == 1
    bench.frame()
    assert len(bench.begun) == 2
    bench.frame()
    bench.answer()
    assert len(bench.begun) == 3
    bench.client(Stop())
    assert bench.last(AskEnded).reason == "stopped"
    bench.frame()
    assert len(bench.begun) == 3


def test_a_new_ask_supersedes_the_one_in_flight() -> None:
    bench = Bench()
    bench.ready()
    bench.ask(id="a")
    bench.frame()
    bench.ask(id="b")
    assert Cancel(bench.begun[0].key) in bench.commands
    assert bench.last(AskEnded) == AskEnded("a", "superseded")
    bench.take(bench.core.answered(bench.begun[0].key, {"actions": np.zeros((10, 2))}, bench.now))
    assert not bench.all(Chunk)
    bench.answer()
    assert bench.last(Chunk).ask == "b"
    assert bench.counts[("chunks", "superseded")] == 1


def test_nothing_of_an_episode_is_in_the_next() -> None:
    bench = Bench(blend=True)
    bench.ready()
    bench.ask()
    bench.answer(rows=30)
    bench.frame()
    bench.ask(id="a")
    bench.client(Reset())
    assert bench.last(SessionReset).epoch == 2
    assert bench.last(AskEnded) == AskEnded("a", "reset")
    bench.ask()
    assert len(bench.begun) == 2
    bench.ready()
    assert bench.begun[2].previous is None
    bench.answer()
    assert (bench.last(Chunk).epoch, bench.last(Chunk).first) == (2, 0)


def test_a_resumed_session_has_a_new_epoch_and_needs_a_fresh_frame() -> None:
    bench = Bench(PLANNER, rate=2.0)
    bench.ready()
    bench.ask()
    key = bench.begun[0].key
    bench.take(bench.core.emitted(key, bench.now))
    assert Cancel(key) in bench.core.detach(bench.now)
    bench.now += 3
    bench.take(bench.core.attach(bench.now))
    resumed = bench.last(SessionResumed).session
    assert (resumed.epoch, resumed.rate, resumed.goal) == (2, 2.0, "home")
    bench.take(bench.core.answered(key, {"actions": np.zeros((2, 7))}, bench.now))
    assert not bench.all(Chunk)
    bench.ask()
    assert len(bench.begun) == 1
    bench.state([0] * 7)
    bench.frame("camera")
    goal = bench.begun[1].goal
    assert goal is not None
    assert (goal.name, goal.shot) == ("home", None)


def test_a_plan_is_shown_newer_frames_until_it_has_looked() -> None:
    bench = Bench(PLANNER)
    first = bench.ready()
    bench.ask(deadline_ms=50.0)
    begin = bench.begun[0]
    assert begin.settings == {"deadline_ms": 50.0}
    bench.take(bench.core.looking(begin.key, 7, first, bench.now))
    second = bench.frame("camera")
    assert bench.commands[-1] == Show(begin.key, second)
    bench.take(bench.core.looking(begin.key, 8, second, bench.now))
    bench.take(bench.core.emitted(begin.key, bench.now))
    bench.frame("camera")
    assert bench.commands[-1] != Show(begin.key, second)
    bench.answer(rows=2, observation=8, deadline_hit=True, energy=0.5, iteration=2, elapsed_ms=3.0)
    chunk = bench.last(Chunk)
    assert chunk.obs_seq == {"camera": second.seq}
    assert chunk.deadline_hit
    assert chunk.plan == {"iteration": 2, "energy": 0.5, "elapsed_ms": 3.0}


def test_a_policys_deadline_is_told_but_its_chunk_is_given() -> None:
    bench = Bench()
    bench.ready()
    bench.ask(deadline_ms=100)
    bench.pass_time(0.15)
    bench.answer()
    assert bench.last(Chunk).deadline_hit
    assert bench.last(Chunk).actions


def test_chunks_are_held_to_the_rows_that_are_still_to_come() -> None:
    bench = Bench(blend=True)
    bench.ready()
    bench.ask()
    bench.answer()
    for _ in range(2):  # the second one's age is the first that counts
        bench.pass_time(0.1)
        bench.frame()
        bench.ask()
        bench.pass_time(0.2)
        bench.answer()
    before = np.array(bench.last(Chunk).actions, np.float32)
    valid_from = bench.last(Chunk).t_valid_from
    bench.pass_time(0.1)
    frame = bench.frame()
    bench.ask()
    begin = bench.begun[-1]
    assert begin.previous is not None
    np.testing.assert_array_equal(begin.previous, before[round((frame.t_capture - valid_from) / 0.1) :])
    assert begin.delay == 2


def test_settings_are_taken_whole_or_not_at_all() -> None:
    bench = Bench(PLANNER, prompt="up", rate=5.0)
    assert bench.last(SessionUpdated).session.prompt == "up"
    bench = Bench(PLANNER, rate=9.0, cameras=["nose"])
    assert bench.last(Fault).param == "session.cameras"
    assert bench.core.shown.rate == 4.0
    assert Bench(PLANNER, blend=True).last(Fault).param == "session.blend"


def test_what_can_not_be_asked_for_is_named() -> None:
    bench = Bench(PLANNER)
    bench.ask()
    assert bench.last(Fault).code == "no_goal"
    bench.frame("nose")
    assert "there is no camera 'nose'; known: camera" in bench.last(Fault).message
    policy = Bench()
    policy.take(policy.core.frame(Frame(Kind.GOAL, "", 0, 0.0, shot()), 0.0))
    assert policy.last(Fault).code == "no_goal"


def test_pings_follow_one_another_and_then_come_now_and_then() -> None:
    bench = Bench(pings=False)
    assert len(bench.commands) == 2
    for number in range(1, 4):
        bench.client(Pong(number, bench.robot))
    assert len(bench.commands) == 5
    bench.client(Pong(4, bench.robot))
    assert len(bench.commands) == 5
    bench.client(Pong(4, 0.0))
    bench.pass_time(10)
    assert len(bench.commands) == 10


def test_what_was_stamped_before_a_clock_was_set_is_not_used() -> None:
    bench = Bench(pings=False, wait_ms=100)
    bench.pong()
    bench.ready()
    bench.ask(id="a", repeat=True)
    assert len(bench.begun) == 1
    bench.pass_time(3.0)
    bench.ahead = -500.0
    bench.pong()
    assert [command.key for command in bench.commands if isinstance(command, Cancel)] == [1]
    bench.answer()  # of what was cancelled
    assert not bench.all(Chunk)
    bench.state([0.0] * 3)
    bench.frame(seq=1)  # numbers may begin anew with the clock
    bench.answer()
    chunk = bench.last(Chunk)
    assert (chunk.number, chunk.ask) == (2, "a")
    assert chunk.t_valid_from == pytest.approx(bench.robot, abs=1.0)


def test_a_client_that_does_not_read_is_asked_nothing_new_for() -> None:
    bench = Bench()
    bench.ready()
    bench.take(bench.core.congested(True, bench.now))
    bench.ask()
    assert not bench.begun
    bench.take(bench.core.congested(False, bench.now))
    assert len(bench.begun) == 1


def test_a_session_ends() -> None:
    bench = Bench()
    bench.pass_time(3600)
    assert bench.last(Fault).code == "session_expired"
    assert End(1001, "session_expired") in bench.commands


def test_a_failure_ends_the_ask() -> None:
    bench = Bench()
    bench.ready()
    bench.ask(id="a")
    bench.take(bench.core.failed(bench.begun[0].key, "wrong_shape", "state is wrong", "state", bench.now))
    assert bench.last(Fault) == Fault("wrong_shape", "state is wrong", "state")
    assert bench.last(AskEnded) == AskEnded("a", "failed")
