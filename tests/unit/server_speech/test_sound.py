"""Bytes of a shape do not depend on how the sound was cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def spoken(coding: Coding, rate: int = 24_000) -> Outlet:
    outlet = Outlet(24_000, Shape(coding, rate))
    for _ in range(2):
        outlet.feed(np.full(2400, 0.5, np.float32))
    return outlet


@pytest.mark.parametrize("coding", ["pcm", "wav", "pcmu", "pcma", "f32"])
def test_what_is_cut_off_falls_to_silence(coding: Coding) -> None:
    outlet = spoken(coding, 8000)
    assert outlet.faded(None) == b""  # nothing of it has left
    outlet.left = True
    for head in (None, outlet.head):
        raw = outlet.faded(head)
        match coding:
            case "f32":
                pcm = np.frombuffer(raw, "<f4")
            case "pcmu" | "pcma":
                pcm = (mulaw_decode if coding == "pcmu" else alaw_decode)(raw) / np.float32(32768)
            case _:
                pcm = np.frombuffer(raw, "<i2") / np.float32(32768)
        assert len(pcm) == 64  # 8 ms
        assert (np.diff(np.abs(pcm)) <= 0).all()
        assert abs(pcm[0]) > 0.4
        assert abs(pcm[-1]) < 0.02


def test_frames_fade_by_themselves_and_silence_needs_no_fade() -> None:
    for coding in ("mp3", "opus", "flac"):
        outlet = spoken(coding, 24_000 if coding != "opus" else 48_000)
        outlet.left = True
        assert outlet.faded(None) == b""
    outlet = Outlet(24_000, Shape("pcm", 24_000))
    outlet.feed(np.zeros(2400, np.float32))
    outlet.left = True
    assert outlet.faded(outlet.head) == b""
