"""Whisper's log-mel features, in numpy.

Facts of the feature (as published with Whisper and used by its checkpoints): 16 kHz, windows of 400 samples every 160
(periodic Hann, centred, reflected at both ends), power spectrum, Slaney mel filters over 0 … 8 kHz, log10 with a floor
of 1e-10, clamped to 8 below the maximum of the whole padded length, then (x + 4) / 4.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

RATE = 16_000
"""Samples per second that the features are defined at."""
HOP = 160
"""Samples per mel frame (10 ms)."""
WINDOW = 400
"""Samples under one analysis window (25 ms)."""

_FLOOR = 1e-10
_RANGE = 8.0
_BLOCK = 512  # frames transformed at once, so that the spectra of a long wave stay in the cache


def _mel_of(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Slaney's scale: linear (3 mel per 200 Hz) up to 1 kHz = 15 mel, then 27 mel per factor of 6.4."""
    above = 15.0 + 27.0 * np.log(np.maximum(hertz, 1.0) / 1000.0) / np.log(6.4)
    return np.where(hertz < 1000.0, hertz * 0.015, above)


def _hertz_of(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above = 1000.0 * np.exp((mel - 15.0) * np.log(6.4) / 27.0)
    return np.where(mel < 15.0, mel / 0.015, above)


@cache
def mel_filters(bins: int) -> NDArray[np.float64]:
    """Triangles of unit area on the Slaney scale, [201 frequencies, bins]."""
    top = _mel_of(np.array([RATE / 2.0]))[0]
    corners = _hertz_of(np.linspace(0.0, top, bins + 2))
    low, centre, high = corners[:-2], corners[1:-1], corners[2:]
    frequency = np.linspace(0.0, RATE / 2.0, WINDOW // 2 + 1)[:, None]
    rising = (frequency - low) / (centre - low)
    falling = (high - frequency) / (high - centre)
    filters = np.clip(np.minimum(rising, falling), 0.0, None) * (2.0 / (high - low))
    filters.flags.writeable = False
    return np.asarray(filters)


@cache
def _hann() -> NDArray[np.float64]:
    return np.asarray(0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(WINDOW) / WINDOW))


def unit_variance(wave: NDArray[np.float32]) -> NDArray[np.float32]:
    """The wave with mean 0 and variance 1 (1e-7 added to the variance), float32 of the same shape."""
    return np.asarray((wave - wave.mean()) / np.sqrt(wave.var() + 1e-7), dtype=np.float32)


def log_mel(wave: NDArray[np.float32], *, bins: int = 80, frames: int | None = None) -> NDArray[np.float32]:
    """Log-mel spectrum of a wave at 16 kHz, float32 [bins, frames].

    `frames` pads the wave with zeros, or cuts it, to frames · 160 samples; by default the wave is taken as it is and
    gives len // 160 frames. Frames that lie wholly in the padding are not computed, their value is known.

    Raises ValueError for a wave that is not one-dimensional or is too short to be reflected (201 samples).
    """
    if wave.ndim != 1:
        raise ValueError(f"wave: expected one dimension, got shape {wave.shape}")
    length = len(wave) if frames is None else frames * HOP
    frames = length // HOP
    half = WINDOW // 2
    if length <= half:
        raise ValueError(f"wave: {length} samples are fewer than the {half + 1} of half a window")
    heard = np.asarray(wave[:length], dtype=np.float64)
    sounding = min(frames, -(-(len(heard) + half) // HOP))  # frames that reach a sample of the wave
    needed = min(length, max(sounding * HOP + half, half + 1))
    padded = np.pad(np.pad(heard, (0, max(0, needed - len(heard)))), half, mode="reflect")
    windows = sliding_window_view(padded, WINDOW)[::HOP][:sounding]
    out = np.full((frames, bins), np.log10(_FLOOR))
    for start in range(0, sounding, _BLOCK):
        spectrum = np.fft.rfft(windows[start : start + _BLOCK] * _hann(), axis=-1)
        power = spectrum.real**2 + spectrum.imag**2
        out[start : start + len(power)] = np.log10(np.maximum(power @ mel_filters(bins), _FLOOR))
    out = np.maximum(out, out.max() - _RANGE) if frames else out
    return np.ascontiguousarray(((out + 4.0) / 4.0).T, dtype=np.float32)
