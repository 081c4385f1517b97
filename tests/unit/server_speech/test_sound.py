"""Bytes of a shape do not depend on how the sound was cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from media.decode import decode_any
from media.g711 import alaw_decode, mulaw_decode
from mstar.errors import Rejected
from server.speech.elevenlabs_wire import shape_of
from server.speech.sound import Coding, Outlet, Shape, rate_for

SOUND = (0.5 * np.sin(np.arange(2205) / 7)).astype(np.float32)


def bytes_of(shape: Shape, cuts: list[int]) -> bytes:
    outlet = Outlet(22_050, shape)
    borders = [0, *sorted(cuts), len(SOUND)]
    out = b"".join(outlet.feed(SOUND[a:b]) for a, b in itertools.pairwise(borders))
    return out + outlet.finish()


@settings(max_examples=20)
@given(
    st.sampled_from([Shape("pcm", 24_000), Shape("wav", 22_050), Shape("pcmu", 8000), Shape("f32", 44_100)]),
    st.lists(st.integers(0, len(SOUND)), max_size=5),
)
def test_chunks_together_are_the_whole(shape: Shape, cuts: list[int]) -> None:
    assert bytes_of(shape, cuts) == bytes_of(shape, [])


def test_a_border_gives_out_what_the_filter_holds() -> None:
    outlet = Outlet(22_050, Shape("pcm", 24_000))
    out = outlet.feed(SOUND) + outlet.border()
    assert len(out) == 2 * 2400
    assert outlet.finish() == b""


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mp3_44100_128", Shape("mp3", 44_100, 128_000)),
        ("mp3_22050_32", Shape("mp3", 22_050, 32_000)),
        ("pcm_24000", Shape("pcm", 24_000)),
        ("ulaw_8000", Shape("pcmu", 8000)),
        ("alaw_8000", Shape("pcma", 8000)),
        ("opus_48000_64", Shape("opus", 48_000, 64_000)),
    ],
)
def test_elevenlabs_formats(name: str, shape: Shape) -> None:
    assert shape_of(name) == shape


@pytest.mark.parametrize(
    ("coding", "own", "asked", "rate"),
    [
        ("pcm", 22_050, None, 22_050),
        ("wav", 22_050, 11_000, 11_000),
        ("mp3", 22_050, None, 22_050),
        ("aac", 23_000, None, 24_000),
        ("mp3", 96_000, None, 48_000),
        ("opus", 22_050, None, 48_000),
    ],
)
def test_the_rate_told_is_the_one_that_is_sent(coding: Coding, own: int, asked: int | None, rate: int) -> None:
    assert rate_for(coding, own, asked) == rate


@pytest.mark.parametrize("coding", ["mp3", "aac", "opus"])
def test_rates_that_a_format_does_not_have_are_refused(coding: Coding) -> None:
    with pytest.raises(Rejected) as refused:
        rate_for(coding, 22_050, 11_000)
    assert refused.value.param == "sample_rate"


RATE = 24_000
TONE = (0.5 * np.sin(np.arange(RATE) * (2 * np.pi * 200 / RATE))).astype(np.float32)


def pcm_of(coding: Coding, raw: bytes) -> np.ndarray:
    """What a listener hears, float [n]."""
    match coding:
        case "f32":
            return np.frombuffer(raw, "<f4")
        case "pcmu" | "pcma":
            return (mulaw_decode if coding == "pcmu" else alaw_decode)(raw) / np.float32(32768)
        case "pcm":
            return np.frombuffer(raw, "<i2") / np.float32(32768)
        case "wav":
            return np.frombuffer(raw[44:], "<i2") / np.float32(32768)
        case _:
            return decode_any(raw)[0]


@pytest.mark.parametrize("coding", ["pcm", "wav", "pcmu", "pcma", "f32"])
@pytest.mark.parametrize("then", [TONE[4830:], TONE[:0]], ids=["known", "unknown"])
def test_what_is_cut_off_falls_to_silence(coding: Coding, then: np.ndarray) -> None:
    outlet = Outlet(RATE, Shape(coding, 8000))
    heard = outlet.feed(TONE[:4830])
    fade = pcm_of(coding, (heard if coding == "wav" else b"") + outlet.faded(then))
    fade = fade[-64:]  # 8 ms
    assert np.abs(np.diff(fade)).max() < 0.1
    assert np.abs(fade).max() > 0.2
    assert abs(fade[-1]) < 0.02
    assert outlet_of_nothing(coding) == b""


def outlet_of_nothing(coding: Coding) -> bytes:
    return Outlet(RATE, Shape(coding, 8000)).faded(TONE[:4800])


@pytest.mark.parametrize(("coding", "rate"), [("mp3", 24_000), ("opus", 48_000), ("aac", 24_000), ("flac", 24_000)])
@pytest.mark.parametrize("samples", [12_000, 13_333, 20_011])
def test_what_is_cut_off_in_frames_is_decoded_to_its_end_and_that_is_silence(
    coding: Coding, rate: int, samples: int
) -> None:
    outlet = Outlet(RATE, Shape(coding, rate))
    left = b"".join(outlet.feed(TONE[at : min(at + 480, samples)]) for at in range(0, samples, 480))
    heard = pcm_of(coding, left + outlet.faded(TONE[samples : samples + 480]))
    assert len(pcm_of(coding, left)) <= len(heard) <= (samples + 480) * rate / RATE + 4 * 1152  # and an encoder's delay
    assert np.abs(heard[len(heard) // 4 : len(heard) // 2]).max() > 0.4
    ends = round(0.001 * rate)
    assert np.abs(heard[-ends:]).max() < 0.05
    steps = np.abs(np.diff(heard))
    assert steps[len(steps) // 2 :].max() < 0.08  # of the tone itself 0.027


def test_silence_needs_no_fade() -> None:
    outlet = Outlet(24_000, Shape("pcm", 24_000))
    outlet.feed(np.zeros(2400, np.float32))
    assert outlet.faded(np.zeros(480, np.float32)) == b""
