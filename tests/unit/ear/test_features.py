"""Log-mel features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from media.features import log_mel, mel_filters

DATA = Path(__file__).parents[2] / "data"


def test_filters_are_the_published_ones() -> None:
    published = load_file(DATA / "whisper" / "outputs.safetensors")["mel_filters"]
    np.testing.assert_allclose(mel_filters(80), published, atol=1e-8)


def test_128_bins_of_a_wave_that_is_not_padded() -> None:
    case = load_file(DATA / "mel128" / "case.safetensors")
    mel = log_mel(case["wave"], bins=128)
    assert mel.shape == (128, len(case["wave"]) // 160)
    np.testing.assert_allclose(mel, case["features"].astype(np.float32), atol=2e-3)


@pytest.mark.parametrize("samples", [0, 1, 159, 160, 201, 15_800, 15_999, 16_000])
def test_frames_in_the_padding_are_those_of_zeros(samples: int) -> None:
    wave = np.random.default_rng(samples).standard_normal(samples).astype(np.float32)
    zeros = np.zeros(48_000 - samples, dtype=np.float32)
    np.testing.assert_array_equal(log_mel(wave, frames=300), log_mel(np.concatenate((wave, zeros))))


def test_a_long_wave_is_cut() -> None:
    wave = np.random.default_rng(0).standard_normal(20_000).astype(np.float32)
    np.testing.assert_array_equal(log_mel(wave, frames=100), log_mel(wave[:16_000]))


@pytest.mark.parametrize("wave", [np.zeros((2, 400), np.float32), np.zeros(200, np.float32)])
def test_what_can_not_be_transformed_is_named(wave: np.ndarray) -> None:
    with pytest.raises(ValueError, match="wave"):
        log_mel(wave)
