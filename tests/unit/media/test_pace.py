import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from media.pace import AheadLimiter, Pacer

RATE, FRAME = 48000, 960
delays = st.lists(st.one_of(st.just(0.0), st.floats(0, 0.019), st.floats(0, 2.0)), max_size=200)


@given(st.floats(0, 1e6), delays)
@settings(deadline=None)
def test_frames_neither_drift_nor_burst_over_stalls(start: float, late: list[float]) -> None:
    """A caller that sleeps to each deadline and is then held up for a while, again and again."""
    pacer = Pacer(RATE, FRAME)
    now = start
    sent: list[float] = []
    for held_up in late:
        due = pacer.next(now)
        assert now - due <= pacer.stall + 1e-6  # what is made up for is bounded
        now = max(now, due)
        sent.append(now)
        now += held_up
    for n in range(len(sent)):
        # Never earlier than real time from any earlier frame allows, but for the 120 ms that may be made up for.
        for m in range(max(0, n - 30), n):
            assert sent[n] - sent[m] >= (n - m) * FRAME / RATE - pacer.stall - 1e-6
    if max(late, default=0) <= 0.019:  # never more than a frame is owed
        assert pacer.stalls == 0
        due_last = pacer.due(len(sent) - 1) if sent else start
        assert due_last == pytest.approx(start + max(0, len(sent) - 1) * FRAME / RATE, abs=1e-6)


def test_deadlines_are_absolute() -> None:
    pacer = Pacer(RATE, FRAME)
    now = 100.0
    for n in range(30000):  # ten minutes, every call a little late
        due = pacer.next(now)
        assert due == pytest.approx(100.0 + n * 0.02, abs=1e-9)
        now = due + 0.0031
    assert pacer.stalls == 0
    assert pacer.position == 30000 * FRAME


def test_a_short_delay_is_made_up_for_and_a_stall_is_not() -> None:
    pacer = Pacer(RATE, FRAME)
    assert pacer.next(0.0) == 0.0
    assert [pacer.next(0.1) for _ in range(6)] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.10, 0.12])
    assert pacer.next(0.5) == 0.5  # 360 ms late: the anchor moves
    assert pacer.next(0.5) == pytest.approx(0.52)
    assert pacer.stalls == 1
    assert pacer.position == 9 * FRAME  # the time line of samples has no gap


def test_due_is_unknown_before_the_first_frame() -> None:
    assert Pacer(RATE, FRAME).due(3) is None
    with pytest.raises(ValueError, match="rate and frame must be positive"):
        Pacer(0, FRAME)


@given(st.lists(st.tuples(st.floats(0, 1.5), st.integers(0, 50000)), max_size=60))
@settings(deadline=None)
def test_never_more_than_the_limit_ahead(steps: list[tuple[float, int]]) -> None:
    """Against a simulated client that plays in real time from its first sample."""
    limiter = AheadLimiter(24000)
    now = 5.0
    waiting = 0.0  # samples at the client
    for elapsed, wish in steps:
        now += elapsed
        waiting = max(0.0, waiting - elapsed * 24000)
        count = min(wish, limiter.allowance(now))
        limiter.send(count, now)
        waiting += count
        assert waiting <= limiter.limit + 1
        assert limiter.sent - limiter.played(now) == pytest.approx(waiting, abs=len(steps) + 1)


@given(st.floats(0, 1e5), st.integers(1, 48000), st.floats(0, 1))
@settings(deadline=None)
def test_ready_at_is_when_the_allowance_is_there(start: float, wish: int, elapsed: float) -> None:
    limiter = AheadLimiter(24000)
    limiter.send(limiter.allowance(start), start)
    now = start + elapsed
    ready = limiter.ready_at(wish, now)
    assert ready >= now
    assert limiter.allowance(ready) >= wish
    if ready > now:
        assert limiter.allowance(ready - 0.001) < wish


def test_a_client_that_ran_dry_starts_again_with_the_next_sample() -> None:
    limiter = AheadLimiter(1000, ahead=2)
    limiter.send(500, 0.0)
    assert limiter.played(0.2) == 200
    assert limiter.played(10.0) == 500
    limiter.send(1000, 10.0)
    assert limiter.played(10.0) == 500
    assert limiter.played(10.3) == 800
    assert limiter.allowance(10.3) == 1300


def test_drop_says_what_was_played_and_frees_the_rest() -> None:
    limiter = AheadLimiter(1000, ahead=2)
    limiter.send(2000, 0.0)
    assert limiter.allowance(0.0) == 0
    with pytest.raises(ValueError, match="samples must be 0 to 0"):
        limiter.send(1, 0.0)
    assert limiter.drop(0.75) == 750
    assert limiter.allowance(0.75) == 2000
    assert limiter.played(5.0) == 0
