"""What the answer track plays, and what it counts as heard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from media.frames import level
from server.webrtc.speaker import FRAME, RATE, Speaker

SPEECH = 24_000


def sine(seconds: float, hertz: float = 440.0, rate: int = SPEECH) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def drain(speaker: Speaker, frames: int = 1000) -> tuple[np.ndarray, dict[str, list[int]]]:
    """Frames until nothing waits (and one more) → sound, and the counts told of each response."""
    sound: list[np.ndarray] = []
    heard: dict[str, list[int]] = {}
    for _ in range(frames):
        pcm, told = speaker.take()
        sound.append(pcm)
        for each in told:
            heard.setdefault(each.response, []).append(each.samples)
        if not told and not speaker.waiting:
            break
    return np.concatenate(sound), heard


@given(
    sizes=st.lists(st.integers(1, 6000), min_size=1, max_size=12),
    rate=st.sampled_from([16_000, 22_050, 24_000, 48_000]),
)
def test_everything_played_is_counted_exactly_once(sizes: Sequence[int], rate: int) -> None:
    speaker = Speaker(rate)
    for size in sizes:
        speaker.play("r", np.full(size, 0.25, dtype=np.float32), last=False)
    speaker.play("r", np.zeros(0, dtype=np.float32), last=True)
    _, heard = drain(speaker)
    counts = heard["r"]
    assert counts == sorted(set(counts))
    assert counts[-1] == sum(sizes)
    assert max(np.diff([0, *counts])) <= FRAME * rate // RATE + 1


def test_silence_is_nobodys() -> None:
    speaker = Speaker(SPEECH)
    for _ in range(10):
        pcm, heard = speaker.take()
        assert not pcm.any()
        assert heard == []


def test_the_sound_that_was_given_is_the_sound_that_leaves() -> None:
    speaker = Speaker(SPEECH)
    sound = sine(0.5)
    for start in range(0, sound.size, 1000):
        speaker.play("r", sound[start : start + 1000], last=False)
    speaker.play("r", np.zeros(0, dtype=np.float32), last=True)
    out, _ = drain(speaker)
    expected = sine(0.5, rate=RATE)
    got = out[: expected.size].astype(np.float64) / 32768
    middle = slice(RATE // 20, -RATE // 20)
    noise = got[middle] - expected[middle]
    assert 10 * np.log10(np.mean(expected[middle] ** 2) / np.mean(noise**2)) > 60


def test_responses_play_one_after_another_however_their_sound_comes() -> None:
    speaker = Speaker(SPEECH)
    speaker.play("first", sine(0.1), last=False)
    speaker.play("second", sine(0.1), last=False)
    speaker.play("first", sine(0.1), last=True)
    speaker.play("second", sine(0.1), last=True)
    told: list[str] = []
    while speaker.waiting:
        told += [each.response for each in speaker.take()[1]]
    assert told == sorted(told)
    assert set(told) == {"first", "second"}


def test_cutting_off_fades_and_is_silent_within_a_frame() -> None:
    speaker = Speaker(SPEECH)
    speaker.play("r", sine(2.0), last=False)
    before = [speaker.take() for _ in range(10)]
    assert before[-1][1][0].samples == 10 * FRAME * SPEECH // RATE
    speaker.clear("r")
    after, heard = speaker.take()
    assert heard == []
    assert level(after[: RATE // 200]).peak > -20  # still there for some milliseconds …
    assert not after[RATE * 8 // 1000 :].any()  # … and gone after eight
    joined = np.concatenate((before[-1][0], after)).astype(np.int64)
    steepest = np.abs(np.diff(sine(1.0, rate=RATE) * 32768)).max()
    assert np.abs(np.diff(joined)).max() <= steepest * 1.1  # no click
    assert not speaker.take()[0].any()


def test_cutting_off_one_response_keeps_the_next() -> None:
    speaker = Speaker(SPEECH)
    speaker.play("first", sine(0.2), last=True)
    speaker.play("second", sine(0.2), last=True)
    speaker.take()
    speaker.clear("first")
    _, heard = drain(speaker)
    assert set(heard) == {"second"}
    assert heard["second"][-1] == round(0.2 * SPEECH)


def test_what_was_cut_off_can_not_be_cut_again() -> None:
    speaker = Speaker(SPEECH)
    speaker.play("r", sine(0.1), last=True)
    drain(speaker)
    speaker.clear("r")
    speaker.clear("never")
    assert not speaker.take()[0].any()


def test_more_than_the_buffer_holds_is_kept_in_order() -> None:
    speaker = Speaker(SPEECH)
    seconds = 6
    speaker.play("r", sine(seconds), last=True)
    _, heard = drain(speaker)
    assert heard["r"][-1] == seconds * SPEECH
