"""The peer's track as one stream: packets lost, silence, other rates."""

from __future__ import annotations

import numpy as np
import pytest

from server.webrtc.hearing import MOST_SILENCE_SECONDS, Hearing

RATE = 48_000
FRAME = 960
MIC = 16_000


def sine(samples: int, rate: int = RATE, hertz: float = 300.0) -> np.ndarray:
    wave: np.ndarray = np.rint(8000 * np.sin(2 * np.pi * hertz * np.arange(samples) / rate)).astype(np.int16)
    return wave


def frames(count: int, lost: tuple[int, ...] = ()) -> list[tuple[int, np.ndarray]]:
    sound = sine(count * FRAME)
    return [(i * FRAME, sound[i * FRAME : (i + 1) * FRAME]) for i in range(count) if i not in lost]


@pytest.mark.parametrize("lost", [(), (20,), (20, 21, 22), (5, 25, 45)])
def test_a_lost_packet_costs_no_time(lost: tuple[int, ...]) -> None:
    hearing = Hearing(MIC)
    out = np.concatenate([hearing.feed(pts, RATE, pcm) for pts, pcm in frames(60, lost)])
    assert abs(out.size - 60 * FRAME * MIC // RATE) <= 2 * 32 + 1  # what the filter holds
    assert hearing.filled == pytest.approx(len(lost) * 0.02)


def test_the_sound_is_the_one_that_was_spoken() -> None:
    hearing = Hearing(MIC)
    out = np.concatenate([hearing.feed(pts, RATE, pcm) for pts, pcm in frames(50)])
    expected = sine(out.size, MIC) / 32768
    middle = slice(800, -800)
    noise = out[middle] - expected[middle]
    assert 10 * np.log10(np.mean(expected[middle] ** 2) / np.mean(noise**2)) > 50


def test_silence_takes_the_place_of_what_does_not_come_and_is_not_lived_through_twice() -> None:
    hearing = Hearing(MIC)
    parts = [hearing.feed(pts, RATE, pcm) for pts, pcm in frames(10)]
    parts += [hearing.nothing(0.2) for _ in range(5)]  # one second
    gone = 10 * FRAME + RATE  # the sender's clock went on meanwhile
    parts.append(hearing.feed(gone, RATE, sine(FRAME)))
    total = sum(part.size for part in parts)
    assert abs(total - (11 * FRAME + RATE) * MIC // RATE) <= 64


def test_a_long_pause_of_the_sender_is_cut_short() -> None:
    hearing = Hearing(MIC)
    first = hearing.feed(0, RATE, sine(FRAME)).size
    later = hearing.feed(60 * RATE, RATE, sine(FRAME)).size
    assert first + later <= (MOST_SILENCE_SECONDS + 0.05) * MIC


def test_before_the_first_frame_there_is_no_time() -> None:
    assert Hearing(MIC).nothing(0.2).size == 0


def test_another_codec_goes_on_at_its_own_rate() -> None:
    hearing = Hearing(MIC)
    hearing.feed(0, RATE, sine(FRAME))
    out = np.concatenate([hearing.feed(i * 160, 8000, sine(160, 8000)) for i in range(50)])
    assert abs(out.size - MIC) <= 160
