import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from media import frames

ints = arrays(np.int16, st.integers(0, 300))


@given(ints)
@settings(deadline=None)
def test_int16_survives_float_and_bytes(pcm: frames.Pcm16) -> None:
    assert np.array_equal(frames.to_int16(frames.to_float(pcm)), pcm)
    assert np.array_equal(frames.from_bytes(frames.to_bytes(pcm)), pcm)


def test_full_scale_clips_and_nan_is_silent() -> None:
    x = np.array([1.0, -1.0, 2.0, -2.0, np.inf, -np.inf, np.nan, 0.5], dtype=np.float32)
    assert frames.to_int16(x).tolist() == [32767, -32768, 32767, -32768, 32767, -32768, 0, 16384]


def test_bytes_are_little_endian() -> None:
    assert frames.to_bytes(np.array([1, -2], dtype=np.int16)) == b"\x01\x00\xfe\xff"


def test_other_types_are_refused_by_name() -> None:
    for convert in (frames.to_float, frames.to_int16):
        with pytest.raises(ValueError, match="pcm must be int16 or float32, not float64"):
            convert(np.zeros(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="even number of bytes, got 3"):
        frames.from_bytes(b"abc")


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
@settings(deadline=None)
def test_byte_carry_gives_the_same_samples_wherever_the_stream_is_cut(raw: bytes, cuts: list[int]) -> None:
    carry = frames.ByteCarry()
    edges = [0, *sorted(min(c, len(raw)) for c in cuts), len(raw)]
    out = [carry.feed(raw[a:b]) for a, b in itertools.pairwise(edges)]
    assert np.array_equal(np.concatenate(out), frames.from_bytes(raw[: len(raw) & ~1]))
    assert carry.pending == bool(len(raw) % 2)


def test_byte_carry_reset_drops_the_half_sample() -> None:
    carry = frames.ByteCarry()
    carry.feed(b"\x01")
    carry.reset()
    assert carry.feed(b"\x02\x00").tolist() == [2]


@given(ints, st.integers(0, 400))
@settings(deadline=None)
def test_fades_touch_their_end_only_and_never_grow(pcm: frames.Pcm16, samples: int) -> None:
    n = min(samples, pcm.size)
    rising, falling = frames.fade_in(pcm, samples), frames.fade_out(pcm, samples)
    assert np.array_equal(rising[n:], pcm[n:])
    assert np.array_equal(falling[: pcm.size - n], pcm[: pcm.size - n])
    for faded in (rising, falling):
        assert np.all(np.abs(faded.astype(int)) <= np.abs(pcm.astype(int)))


def test_fade_out_ends_near_silence() -> None:
    faded = frames.fade_out(np.full(480, 20000, dtype=np.int16), 240)
    assert abs(int(faded[-1])) < 100
    assert faded[239] == 20000
    assert np.abs(np.diff(faded[239:].astype(int))).max() < 100


def test_levels_of_known_signals() -> None:
    t = np.arange(48000) / 48000
    tone = (0.5 * np.sin(2 * np.pi * 1000 * t)).astype(np.float32)
    assert frames.level(tone).peak == pytest.approx(-6.02, abs=0.01)
    assert frames.level(tone).rms == pytest.approx(-9.03, abs=0.01)
    assert frames.level(frames.silence(10)) == frames.Level(frames.FLOOR_DBFS, frames.FLOOR_DBFS)
    assert frames.level(frames.silence(0)).rms == frames.FLOOR_DBFS
    assert frames.level(np.array([-32768], dtype=np.int16)).peak == pytest.approx(0.0)
    split = frames.levels(np.concatenate((np.zeros(100, np.float32), tone[:150])), 100)
    assert [one.peak > -60 for one in split] == [False, True, True]


def test_first_sound_is_the_first_sample_over_the_threshold() -> None:
    pcm = np.zeros(1000, dtype=np.int16)
    pcm[400] = 150  # -46.8 dBFS
    pcm[700] = -200  # -44.3 dBFS
    assert frames.first_sound(pcm) == 700
    assert frames.first_sound(pcm, -50) == 400
    assert frames.first_sound(pcm[:700]) is None
