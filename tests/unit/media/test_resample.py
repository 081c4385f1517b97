import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from media.frames import PcmF, to_int16
from media.resample import Resampler, resample

RATES = [8000, 16000, 22050, 24000, 44100, 48000]


def tone(hertz: float, rate: int, seconds: float = 0.5, amplitude: float = 0.5) -> PcmF:
    t = np.arange(int(rate * seconds)) / rate
    return (amplitude * np.sin(2 * np.pi * hertz * t)).astype(np.float32)


def snr(got: PcmF, wanted: PcmF, edge: int) -> float:
    """Signal to error in dB; the first and last `edge` samples (the filter meets the signal's ends) do not count."""
    n = min(got.size, wanted.size)
    a, b = got[edge : n - edge].astype(np.float64), wanted[edge : n - edge].astype(np.float64)
    return float(10 * np.log10((b * b).sum() / ((a - b) ** 2).sum()))


def cut(pcm: PcmF, sizes: list[int]) -> list[PcmF]:
    edges = np.cumsum(sizes)
    return np.split(pcm, edges[edges < pcm.size])


@given(st.sampled_from(RATES), st.sampled_from(RATES), st.lists(st.integers(0, 700), max_size=12), st.integers(0, 3000))
@settings(max_examples=60, deadline=None)
def test_the_cut_of_the_input_does_not_matter(source: int, target: int, sizes: list[int], total: int) -> None:
    pcm = np.random.default_rng(total).uniform(-1, 1, total).astype(np.float32)
    whole = resample(pcm, source, target)
    stream = Resampler(source, target)
    pieces = [stream.feed(part) for part in cut(pcm, sizes)] + [stream.flush()]
    joined = np.concatenate(pieces)
    assert joined.size == whole.size
    assert np.abs(joined - whole).max(initial=0) <= 1e-6


@given(st.sampled_from(RATES), st.sampled_from(RATES), st.integers(0, 5000))
@settings(max_examples=60, deadline=None)
def test_length_is_right_after_flush(source: int, target: int, total: int) -> None:
    out = resample(np.zeros(total, dtype=np.float32), source, target)
    assert abs(out.size - total * target / source) < 1


@given(st.sampled_from(RATES), st.sampled_from(RATES), st.lists(st.integers(1, 960), min_size=1, max_size=10))
@settings(max_examples=60, deadline=None)
def test_no_more_is_held_back_than_the_delay(source: int, target: int, sizes: list[int]) -> None:
    stream = Resampler(source, target)
    fed = given_out = 0
    for size in sizes:
        fed += size
        given_out += stream.feed(np.zeros(size, dtype=np.float32)).size
        assert given_out >= (fed - stream.delay) * target / source
    assert stream.delay / source <= 0.0041


@pytest.mark.parametrize(("source", "target"), [(48000, 16000), (24000, 48000), (22050, 24000), (44100, 16000)])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
def test_in_band_tone_keeps_60_db(source: int, target: int, share: float) -> None:
    hertz = share * min(source, target) / 2
    assert snr(resample(tone(hertz, source), source, target), tone(hertz, target), target // 50) >= 60


@pytest.mark.parametrize("hertz", [200.0, 1000.0, 3000.0])
def test_telephone_and_back_keeps_35_db(hertz: float) -> None:
    there = to_int16(resample(tone(hertz, 24000), 24000, 8000))
    assert snr(resample(there, 8000, 24000), tone(hertz, 24000), 600) >= 35


def test_what_the_target_rate_can_not_hold_is_removed() -> None:
    aliased = resample(tone(11000, 48000), 48000, 16000)
    assert 20 * np.log10(np.abs(aliased[400:-400]).max() / 0.5) < -60


@pytest.mark.parametrize(("source", "target"), [(48000, 16000), (24000, 48000), (22050, 48000)])
def test_agrees_with_another_resampler_on_band_limited_noise(source: int, target: int) -> None:
    noise = np.random.default_rng(1).standard_normal(source).astype(np.float32) * 0.1
    narrow = soxr.resample(soxr.resample(noise, source, 8000), 8000, source).astype(np.float32)
    assert snr(resample(narrow, source, target), soxr.resample(narrow, source, target), 600) >= 45


@pytest.mark.parametrize(("source", "target"), [(44101, 48000), (191999, 16000), (16000, 44099)])
def test_odd_ratios_are_good_and_cost_a_bounded_table(source: int, target: int) -> None:
    assert snr(resample(tone(1000, source), source, target), tone(1000, target), target // 50) >= 60
    assert len(Resampler(source, target)._bank) <= 1024


def test_an_impulse_stays_where_it_was() -> None:
    pcm = np.zeros(4800, dtype=np.float32)
    pcm[2400] = 1
    assert int(np.argmax(np.abs(resample(pcm, 48000, 16000)))) == 800
    assert int(np.argmax(np.abs(resample(pcm[::2], 24000, 48000)))) == 2400


def test_equal_rates_pass_unchanged() -> None:
    pcm = np.arange(-50, 50, dtype=np.int16)
    stream = Resampler(24000, 24000)
    assert np.array_equal(to_int16(stream.feed(pcm)), pcm)
    assert stream.flush().size == 0
    assert stream.delay == 0


def test_a_stream_after_flush_or_reset_is_a_new_one() -> None:
    pcm = tone(440, 48000, 0.05)
    stream = Resampler(48000, 16000)
    first = np.concatenate((stream.feed(pcm), stream.flush()))
    stream.feed(pcm[:500])
    stream.reset()
    assert np.array_equal(np.concatenate((stream.feed(pcm), stream.flush())), first)
    assert stream.flush().size == 0


@pytest.mark.parametrize(("source", "target", "field"), [(0, 8000, "source_rate"), (8000, 999999, "target_rate")])
def test_absurd_rates_are_refused_by_name(source: int, target: int, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Resampler(source, target)
