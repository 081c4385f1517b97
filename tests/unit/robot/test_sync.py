from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.robot.events import AskEnded, CameraBack, CameraFrozen, Chunk, Fault, Heard, SessionStopped
from server.robot.frames import Frame, Kind
from server.robot.spoken import says
from server.robot.sync import Watch, newest_set, spread
from tests.unit.robot.robots import AHEAD, PLANNER, Bench, shot

LEFT, RIGHT = "images/left", "images/right"


def frames(**times: list[float]) -> dict[str, list[Frame]]:
    return {
        name: [Frame(Kind.CAMERA, name, n, at, shot()) for n, at in enumerate(given)] for name, given in times.items()
    }


def times(found: dict[str, Frame] | None) -> dict[str, float] | None:
    return None if found is None else {name: frame.t_capture for name, frame in found.items()}


def test_the_newest_frames_make_a_set_if_they_were_taken_together() -> None:
    found = newest_set(frames(a=[1.0, 2.0, 3.0], b=[1.1, 2.1, 3.05]), 0.1)
    assert times(found) == {"a": 3.0, "b": 3.05}
    assert spread(found or {}) == pytest.approx(0.05)


def test_a_camera_that_lags_gets_older_frames_of_the_others_beside_it() -> None:
    found = newest_set(frames(a=[1.0, 2.0, 3.0], b=[0.9, 1.95], c=[1.0, 2.02, 3.02]), 0.1)
    assert times(found) == {"a": 2.0, "b": 1.95, "c": 2.02}


def test_without_frames_within_the_window_there_is_no_set() -> None:
    assert newest_set(frames(a=[1.0, 2.0], b=[1.5, 2.5]), 0.1) is None
    assert newest_set(frames(a=[1.0], b=[]), 0.1) is None


@given(
    st.dictionaries(
        st.sampled_from("abc"), st.lists(st.integers(0, 30), max_size=5, unique=True).map(sorted), min_size=1
    ),
    st.integers(0, 10),
)
def test_no_set_is_newer(given: dict[str, list[int]], window: int) -> None:
    found = newest_set(frames(**{name: [float(at) for at in row] for name, row in given.items()}), window)
    sets = [row for row in itertools.product(*given.values()) if max(row) - min(row) <= window]
    best = max(sets, key=lambda row: (min(row), sum(row)), default=None)
    assert (None if found is None else tuple(frame.t_capture for frame in found.values())) == best


def test_a_camera_that_stands_still_is_told_once_and_when_it_is_back() -> None:
    watch = Watch()
    assert not watch.arrived("a", 0.0)
    watch.arrived("b", 1.0)
    assert watch.due(2.0) == 2.0
    assert watch.stopped(2.0, 2.5) == ["a"]
    assert watch.stopped(2.0, 2.6) == []
    assert watch.due(2.0) == 3.0
    assert watch.arrived("a", 2.7)
    assert not watch.arrived("a", 2.8)


def both(bench: Bench, apart: float) -> None:
    """A frame of each camera, the left one `apart` seconds older."""
    bench.frame(LEFT, age=apart)
    bench.frame(RIGHT)


def test_a_chunk_waits_for_pictures_that_were_taken_together() -> None:
    bench = Bench(cameras=[LEFT, RIGHT], sync_ms=20)
    bench.state([0, 0, 0])
    both(bench, apart=0.2)
    bench.ask()
    assert not bench.begun
    bench.pass_time(0.1)
    bench.frame(LEFT, age=0.31)  # of before the right one's
    assert not bench.begun
    late = bench.frame(LEFT, age=0.1)
    assert bench.begun[0].frames[LEFT] == late
    bench.answer()
    assert bench.last(Chunk).spread_ms == pytest.approx(0)


def test_pictures_that_are_never_taken_together_are_used_after_a_while_and_their_spread_is_told() -> None:
    bench = Bench(cameras=[LEFT, RIGHT], sync_ms=20, wait_ms=300)
    bench.state([0, 0, 0])
    both(bench, apart=0.1)
    bench.ask()
    bench.pass_time(0.3)
    assert len(bench.begun) == 1
    bench.answer()
    assert bench.last(Chunk).spread_ms == pytest.approx(100)


def test_frames_kept_for_sets_are_few_and_all_are_counted() -> None:
    bench = Bench(cameras=[LEFT, RIGHT], sync_ms=20)
    for _ in range(20):
        bench.frame(LEFT)
        bench.pass_time(0.03)
    assert bench.counts[("frames", "dropped")] == 12
    bench.state([0, 0, 0])
    bench.frame(RIGHT, age=0.03)
    bench.ask()
    assert bench.counts == {("frames", "dropped"): 19, ("frames", "used"): 2}


def test_large_frames_kept_for_sets_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.robot.cameras.MOST_BYTES", 3 * shot().size)
    bench = Bench(cameras=[LEFT, RIGHT], sync_ms=20)
    for _ in range(5):
        bench.frame(LEFT)
    assert bench.counts[("frames", "dropped")] == 2
    monkeypatch.setattr("server.robot.cameras.MOST_BYTES", 1)
    bench.frame(LEFT)  # the newest is kept, whatever its size
    assert bench.counts[("frames", "dropped")] == 5
    bench.state([0, 0, 0])
    bench.frame(RIGHT)
    bench.ask()
    assert bench.counts[("frames", "used")] == 2


def test_a_camera_that_does_not_come_is_done_without_or_reported() -> None:
    for missing in ("mask", "report"):
        bench = Bench(cameras=[LEFT, RIGHT], missing=missing)
        bench.ready()
        bench.ask(id="a")
        bench.pass_time(0.9)
        bench.frame(LEFT)
        bench.pass_time(0.1)
        if missing == "mask":
            bench.answer()
            assert bench.last(Chunk).missing == [RIGHT]
        else:
            assert not bench.begun
            assert (bench.last(Fault).code, bench.last(Fault).param) == ("no_fresh_frame", RIGHT)
            assert bench.last(AskEnded) == AskEnded("a", "failed")


def test_a_frozen_camera_is_told_of_without_an_ask() -> None:
    bench = Bench(frozen_ms=700)
    bench.ready()
    bench.pass_time(0.6)
    bench.frame()
    bench.pass_time(0.69)
    assert not bench.all(CameraFrozen)
    bench.pass_time(2.0)
    assert bench.all(CameraFrozen) == [CameraFrozen(LEFT)]
    bench.frame()
    assert bench.all(CameraBack) == [CameraBack(LEFT)]


def test_pictures_of_a_video_are_numbered_and_dated_by_the_first_ping_that_comes_back() -> None:
    bench = Bench(pings=False)
    bench.state([0, 0, 0])
    bench.ask()
    for value in (1, 2):
        bench.take(bench.core.seen(LEFT, bench.now - 0.05, shot(value), bench.now))
    assert not bench.begun
    bench.pong()
    frame = bench.begun[0].frames[LEFT]
    assert (frame.seq, frame.shot) == (1, shot(2))
    assert frame.t_capture == pytest.approx(AHEAD - 0.05)
    assert bench.counts == {("frames", "dropped"): 1, ("frames", "used"): 1}
    bench.answer()
    bench.pass_time(0.1)
    bench.take(bench.core.seen(LEFT, bench.now, shot(3), bench.now))
    bench.ask()
    assert bench.begun[1].frames[LEFT].seq == 2
    assert bench.begun[1].frames[LEFT].t_capture == pytest.approx(AHEAD + bench.now)


def test_who_never_answers_pings_is_told_that_pictures_have_no_time() -> None:
    bench = Bench(pings=False)
    bench.state([0, 0, 0])
    bench.take(bench.core.seen(LEFT, 0.0, shot(), 0.0))
    bench.ask()
    bench.pass_time(1.0)
    assert bench.last(Fault).param == "clock.pong"


def test_the_wall_clock_of_a_robot_is_known_by_its_pings() -> None:
    bench = Bench(pings=False)
    assert bench.core.wall(1.7e9) is None
    bench.pong(wall=1.7e9)
    assert bench.core.wall(1.7e9 + 1) == pytest.approx(bench.now + 1 - bench.transit / 2)


def test_a_word_to_stop_by_ends_the_plan_and_its_epoch() -> None:
    bench = Bench(PLANNER)
    bench.ready()
    bench.ask(id="a", repeat=True)
    key = bench.begun[0].key
    bench.take(bench.core.heard("Please go on.", bench.now))
    assert bench.last(Heard) == Heard("Please go on.")
    assert not bench.all(SessionStopped)
    bench.take(bench.core.heard("Stop!", bench.now))
    assert bench.last(AskEnded) == AskEnded("a", "stopped")
    assert bench.last(SessionStopped) == SessionStopped(2, "stop")
    bench.take(bench.core.answered(key, {"actions": [[0.0] * 7]}, bench.now))
    assert not bench.all(Chunk)
    bench.frame("camera")
    bench.ask(id="b")
    bench.answer()
    assert (bench.last(Chunk).epoch, bench.last(Chunk).first) == (2, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [("Stop.", "stop"), ("now STOP it", "stop"), ("unstoppable", ""), ("", ""), ("hold, on!", "hold on")],
)
def test_words_to_stop_by_are_whole(text: str, said: str) -> None:
    assert says(text, ("stop", "hold on", "")) == said
