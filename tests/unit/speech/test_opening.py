"""The beginning of a response, in one piece and in many."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.speech.opening import KEPT, RAMP, THRESHOLD, Floats, fresh, open_sound

RATE = 22050


def opened(pcm: Floats, sizes: list[int]) -> tuple[Floats, int]:
    state, parts, at = fresh(), [], 0
    for size in [*sizes, len(pcm)]:
        part, state = open_sound(state, pcm[at : at + size], RATE)
        parts.append(part)
        at += size
    return np.concatenate(parts), state.trimmed


def sound(silence: int) -> Floats:
    rng = np.random.default_rng(1)
    quiet = rng.uniform(-0.9, 0.9, silence).astype(np.float32) * np.float32(THRESHOLD)
    return np.concatenate((quiet, rng.uniform(0.1, 0.5, 600).astype(np.float32)))


def test_leading_silence_is_cut_to_what_is_kept() -> None:
    pcm = sound(5000)
    out, trimmed = opened(pcm, [])
    assert trimmed == 5000 - round(KEPT * RATE)
    assert len(out) == 600 + round(KEPT * RATE)
    ramp = round(RAMP * RATE)
    np.testing.assert_array_equal(out[ramp:], pcm[trimmed + ramp :])
    assert abs(out[0]) <= abs(pcm[trimmed]) / 100


def test_a_short_silence_is_left_and_the_first_samples_rise() -> None:
    pcm = sound(0)
    out, trimmed = opened(pcm, [])
    ramp = round(RAMP * RATE)
    assert (trimmed, len(out)) == (0, len(pcm))
    np.testing.assert_allclose(out[:ramp] / pcm[:ramp], np.arange(1, ramp + 1) / ramp, rtol=1e-5)


@given(st.integers(0, 2000), st.lists(st.integers(0, 400), max_size=20))
def test_a_stream_equals_the_sound_in_one_piece(silence: int, sizes: list[int]) -> None:
    pcm = sound(silence)
    whole, trimmed = opened(pcm, [])
    parts, cut = opened(pcm, sizes)
    np.testing.assert_array_equal(parts, whole)
    assert cut == trimmed
