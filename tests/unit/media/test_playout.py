import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from media.frames import Pcm16
from media.playout import Drained, PlayoutBuffer, PlayoutLedger, Span, Started

RATE, FRAME = 48000, 960


def loud(samples: int) -> Pcm16:
    """No zero in it, so that silence can be told from sound."""
    return np.full(samples, 20000, dtype=np.int16)


def buffer(**settings: float) -> PlayoutBuffer:
    return PlayoutBuffer(RATE, RATE, **settings)


def test_sound_goes_through_unchanged_and_named() -> None:
    pcm = np.random.default_rng(0).integers(-9000, 9000, 5000).astype(np.int16)
    queue = buffer()
    assert queue.put("r", 0, pcm) == 5000
    queue.end("r")
    taken = [queue.take(FRAME) for _ in range(6)]
    assert np.array_equal(np.concatenate([one.pcm for one in taken])[:5000], pcm)
    assert [span for one in taken for span in one.spans] == [
        *(Span("r", n * FRAME, FRAME) for n in range(5)),
        Span("r", 4800, 200),
    ]
    assert queue.underruns == 0


def test_silence_before_and_after_is_counted_apart_from_an_underrun() -> None:
    queue = buffer()
    assert not queue.take(FRAME).pcm.any()
    queue.put("r", 0, loud(FRAME))
    queue.take(FRAME)
    queue.end("r")
    queue.take(FRAME)
    assert (queue.silent, queue.starved, queue.underruns) == (2 * FRAME, 0, 0)


def test_after_an_underrun_sound_waits_for_the_prime() -> None:
    queue = buffer()
    queue.put("r", 0, loud(FRAME))
    assert queue.take(FRAME).spans
    assert not queue.take(FRAME).spans
    queue.put("r", FRAME, loud(FRAME))
    assert not queue.take(FRAME).spans  # 20 ms are there, 40 are asked for
    queue.put("r", 2 * FRAME, loud(FRAME))
    assert queue.take(FRAME).spans == (Span("r", FRAME, FRAME),)
    assert (queue.underruns, queue.starved) == (1, 2 * FRAME)


def test_each_underrun_asks_for_more_up_to_60_ms() -> None:
    queue = buffer()
    position = 0
    needed = []
    for _ in range(7):
        while not (frame := queue.take(240)).spans:
            position += queue.put("r", position, loud(240))
        needed.append(queue.queued + frame.spans[0].count)
        while queue.take(240).spans:
            pass
    assert needed == [240, 1920, 2160, 2400, 2640, 2880, 2880]


def test_the_rest_of_a_complete_response_does_not_wait_for_the_prime() -> None:
    queue = buffer(prime_ms=60)
    queue.put("r", 0, loud(100))
    assert not queue.take(FRAME).spans
    queue.end("r")
    assert queue.take(FRAME).spans == (Span("r", 0, 100),)


def test_a_response_follows_another_without_a_gap() -> None:
    queue = buffer()
    queue.put("a", 0, loud(500))
    queue.end("a")
    queue.put("b", 0, loud(460))
    queue.end("b")
    taken = queue.take(FRAME)
    assert taken.spans == (Span("a", 0, 500), Span("b", 0, 460))
    assert np.array_equal(taken.pcm, loud(FRAME))


def test_clear_fades_out_over_8_ms_and_gives_back_the_rest() -> None:
    queue = buffer()
    queue.put("r", 0, loud(3000))
    queue.put("r", 3000, loud(3000))
    queue.take(FRAME)
    dropped = queue.clear()
    assert queue.free == queue.capacity
    assert [(chunk.start, chunk.pcm.size) for chunk in dropped] == [(FRAME, 3000 - FRAME), (3000, 3000)]
    taken = queue.take(FRAME)
    assert taken.spans == ()
    steps = np.diff(np.concatenate((loud(1), taken.pcm)).astype(int))
    assert np.abs(steps).max() < 100  # no click
    assert np.flatnonzero(taken.pcm).max() < 384
    assert not queue.take(FRAME).pcm.any()


def test_what_was_cleared_can_be_put_back_and_rises() -> None:
    queue = buffer()
    queue.put("r", 0, loud(6000))
    queue.take(FRAME)
    dropped = queue.clear()
    queue.take(FRAME)
    for chunk in dropped:
        queue.put(chunk.response, chunk.start, chunk.pcm)
    taken = queue.take(FRAME)
    assert taken.spans == (Span("r", FRAME, FRAME),)
    assert np.abs(np.diff(taken.pcm.astype(int))).max() < 100
    assert taken.pcm[-1] == 20000


def test_clear_while_nothing_plays_is_silent() -> None:
    queue = buffer(prime_ms=60)
    queue.put("r", 0, loud(FRAME))
    queue.take(FRAME)
    queue.clear()
    assert not queue.take(FRAME).pcm.any()


def test_an_underrun_makes_no_click() -> None:
    queue = buffer()
    queue.put("r", 0, loud(FRAME + 100))
    joined = np.concatenate([queue.take(FRAME).pcm for _ in range(3)])
    queue.put("r", FRAME + 100, loud(4000))
    joined = np.concatenate((joined, queue.take(FRAME).pcm))
    assert np.abs(np.diff(joined.astype(int))).max() < 100
    assert joined[-1] == 20000


def test_a_new_response_right_after_clear_is_heard_within_two_frames() -> None:
    queue = buffer()
    queue.put("old", 0, loud(20000))
    queue.take(FRAME)
    queue.clear()
    queue.put("new", 0, loud(FRAME))
    assert [span.response for _ in range(2) for span in queue.take(FRAME).spans][:1] == ["new"]


def test_what_does_not_fit_stays_with_the_caller() -> None:
    queue = PlayoutBuffer(RATE, 4000)
    assert queue.put("r", 0, loud(3000)) == 3000
    assert queue.put("r", 3000, loud(3000)) == 1000
    assert queue.free == 0
    assert queue.put("r", 4000, loud(10)) == 0
    with pytest.raises(ValueError, match="start of response r must be 4000, not 5000"):
        queue.put("r", 5000, loud(10))
    with pytest.raises(ValueError, match="capacity must be at least 2880"):
        PlayoutBuffer(RATE, 100)


def test_ledger_tells_start_and_drain() -> None:
    ledger = PlayoutLedger()
    assert ledger.take([Span("a", 0, 960)]) == [Started("a")]
    assert ledger.playing("a")
    assert ledger.take([Span("a", 960, 40), Span("b", 0, 920)]) == [Started("b")]
    assert ledger.end("a", 1000) == [Drained("a")]
    assert not ledger.playing("a")
    assert ledger.end("b", 1000) == []
    assert ledger.take([Span("b", 920, 80)]) == [Drained("b")]
    assert ledger.end("b", 1000) == []
    assert (ledger.heard("a"), ledger.heard("b"), ledger.heard("c")) == (1000, 1000, 0)


def test_a_cut_response_never_drains() -> None:
    ledger = PlayoutLedger()
    ledger.take([Span("a", 0, 500)])
    assert ledger.cut("a") == 500
    assert ledger.end("a", 500) == []
    assert ledger.heard("a") == 500
    ledger.forget("a")
    assert ledger.heard("a") == 0


def test_an_empty_response_drains_at_its_end() -> None:
    assert PlayoutLedger().end("a", 0) == [Drained("a")]


class Playing(RuleBasedStateMachine):
    """A producer, a track and interrupts in any order: heard is what was taken of the sound, sample by sample."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = PlayoutBuffer(RATE, 6000)
        self.ledger = PlayoutLedger()
        self.number = 0
        self.written = 0
        self.ended = False
        self.heard: dict[str, list[int]] = {}  # the samples' values, which are their positions
        self.drained: list[str] = []
        self.taken = self.named = 0

    @property
    def name(self) -> str:
        return f"r{self.number}"

    @precondition(lambda self: not self.ended)
    @rule(count=st.integers(0, 3000))
    def put(self, count: int) -> None:
        values = 1 + np.arange(self.written, self.written + count) % 30000
        free = self.queue.free
        accepted = self.queue.put(self.name, self.written, values.astype(np.int16))
        assert accepted == min(count, free)
        self.written += accepted

    @precondition(lambda self: not self.ended)
    @rule()
    def end(self) -> None:
        self.queue.end(self.name)
        self.note(self.ledger.end(self.name, self.written))
        self.ended = True

    @rule(size=st.sampled_from([FRAME, 480, 100]))
    def take(self, size: int) -> None:
        taken = self.queue.take(size)
        assert taken.pcm.size == size
        at = 0
        for span in taken.spans:
            heard = self.heard.setdefault(span.response, [])
            assert span.start == len(heard)  # in order, nothing twice, nothing left out
            heard.extend(range(span.start, span.end))
            at += span.count
        self.taken += size
        self.named += at
        self.note(self.ledger.take(taken.spans))

    @rule()
    def interrupt(self) -> None:
        self.queue.clear()
        heard = self.ledger.cut(self.name)
        assert heard == len(self.heard.get(self.name, []))
        self.next_response()

    @precondition(lambda self: self.ended)
    @rule()
    def next_response(self) -> None:
        self.number += 1
        self.written = 0
        self.ended = False

    def note(self, events: list[Started | Drained]) -> None:
        for event in events:
            if isinstance(event, Drained):
                self.drained.append(event.response)

    @invariant()
    def accounts_agree(self) -> None:
        assert self.taken - self.named == self.queue.silent + self.queue.starved
        assert 0 <= self.queue.queued <= self.queue.capacity
        for response, samples in self.heard.items():
            assert self.ledger.heard(response) == len(samples)
        assert len(set(self.drained)) == len(self.drained)
        if self.ended and self.queue.queued == 0:
            assert self.name in self.drained


TestPlaying = Playing.TestCase
TestPlaying.settings = settings(deadline=None)


@given(st.lists(st.sampled_from(["sound", "nothing"]), max_size=40))
@settings(deadline=None)
def test_silence_is_never_heard(steps: list[str]) -> None:
    queue, ledger = buffer(), PlayoutLedger()
    put = 0
    loud_samples = 0
    for step in steps:
        if step == "sound":
            put += queue.put("r", put, loud(FRAME))
        taken = queue.take(FRAME)
        ledger.take(taken.spans)
        loud_samples += int(np.count_nonzero(taken.pcm == 20000))
    assert ledger.heard("r") == put - queue.queued
    # Rises (5 ms) are heard, falls are not; all else that is heard is at full level.
    assert loud_samples <= ledger.heard("r") <= loud_samples + 240 * (queue.underruns + 1)
