"""Sample rate conversion of a stream, without block latency.

A windowed-sinc polyphase filter (Smith, "Digital Audio Resampling"; Kaiser window): every output sample that the input
so far determines is given out at once. FFT-based streaming converters hold 10–70 ms back in blocks, which a
conversation hears; this one looks `delay` input samples ahead and no further (2 ms towards 16 kHz).
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from media.frames import Pcm, PcmF, to_float

CROSSINGS = 32
"""Zero crossings of the sinc on each side, counted at the lower of the two rates."""
ROLLOFF = 0.95
"""Cut-off (-6 dB) as a share of the lower Nyquist frequency."""
KAISER_BETA = 8.0
"""≈ 80 dB stop band, transition ≈ ±4 % of the lower rate's Nyquist frequency."""
MIN_RATE, MAX_RATE = 4_000, 384_000
MAX_PHASES = 1024
"""Rows of a filter bank at most: odd ratios (44101 : 48000) take the nearest row, so that no file's rate costs much."""
FEW_PHASES = 6
"""Up to here a pass per phase is cheaper than gathering the windows."""
GATHERED = 16_384
"""Input values gathered at a time: small enough for memory that the allocator keeps, and for the cache."""


@lru_cache(maxsize=16)
def _filters(up: int, down: int) -> PcmF:
    """Filter bank [rows, 2·half] for the ratio up/down in lowest terms; row p is for outputs p/rows after an input."""
    half = _half_width(up, down)
    cutoff = ROLLOFF * min(1.0, up / down)  # of the input's Nyquist frequency
    offsets = np.arange(-half + 1, half + 1, dtype=np.float64)  # [2·half] input samples around the output
    rows = min(up, MAX_PHASES)
    phases = np.arange(rows, dtype=np.float64) + (0.5 if rows < up else 0.0)
    t = offsets[None, :] - phases[:, None] / rows  # [rows, 2·half]
    window = np.i0(KAISER_BETA * np.sqrt(np.clip(1 - (t / half) ** 2, 0, None))) / np.i0(KAISER_BETA)
    taps = cutoff * np.sinc(cutoff * t) * window
    taps /= taps.sum(axis=1, keepdims=True)  # gain 1 at 0 Hz in every phase
    bank: PcmF = taps.astype(np.float32)
    bank.setflags(write=False)
    return bank


def _half_width(up: int, down: int) -> int:
    return int(np.ceil(CROSSINGS * max(1.0, down / up)))


class Resampler:
    """One direction of one session: `feed` pieces of any size, `flush` at the end.

    Output sample k stands at the time of input k · source_rate / target_rate (no shift); N input samples give
    ceil(N · target_rate / source_rate) output samples after `flush`. The result does not depend on how the input was
    cut. With equal rates samples pass unchanged.
    """

    def __init__(self, source_rate: int, target_rate: int) -> None:
        for name, rate in (("source_rate", source_rate), ("target_rate", target_rate)):
            if not MIN_RATE <= rate <= MAX_RATE:
                raise ValueError(f"{name} must be {MIN_RATE} to {MAX_RATE} Hz, not {rate}")
        self.source_rate = source_rate
        self.target_rate = target_rate
        common = gcd(source_rate, target_rate)
        self._up = target_rate // common
        self._down = source_rate // common
        self._half = 0 if self._up == self._down else _half_width(self._up, self._down)
        self._bank = _filters(self._up, self._down) if self._half else np.ones((1, 1), dtype=np.float32)
        self.reset()

    @property
    def delay(self) -> int:
        """Input samples that must follow an output's instant before it is given out (0 with equal rates)."""
        return self._half

    def reset(self) -> None:
        """Start a new stream."""
        self._fed = 0  # input samples so far
        self._given = 0  # output samples so far
        self._buffer = np.zeros(max(self._half - 1, 0), dtype=np.float32)  # input from sample self._origin on
        self._origin = -max(self._half - 1, 0)

    def feed(self, pcm: Pcm) -> PcmF:
        """int16 or float32 [n] → the samples that are determined now, float32 [m]; `to_int16` if a wire follows."""
        if not self._half:
            return to_float(pcm)
        self._fed += pcm.size
        self._buffer = np.concatenate((self._buffer, to_float(pcm)))
        return self._emit(self._count(self._fed - self._half))

    def flush(self) -> PcmF:
        """The rest of the stream, float32 [m], as if silence followed; the resampler then starts anew."""
        rest: PcmF = np.zeros(0, dtype=np.float32)
        if self._half and self._fed:
            self._buffer = np.concatenate((self._buffer, np.zeros(self._half, dtype=np.float32)))
            rest = self._emit(self._count(self._fed))
        self.reset()
        return rest

    def _count(self, inputs: int) -> int:
        """Output samples whose instant lies before input sample `inputs`."""
        return max(0, -(-inputs * self._up // self._down))

    def _emit(self, end: int) -> PcmF:
        """Outputs self._given … end (none if that is behind), then drop the input that no later output needs."""
        if end <= self._given:
            return np.zeros(0, dtype=np.float32)
        step = end - self._given if self._up <= FEW_PHASES else max(1, GATHERED // (2 * self._half))
        windows = sliding_window_view(self._buffer, 2 * self._half)
        parts = [self._block(windows, k, min(k + step, end)) for k in range(self._given, end, step)]
        self._given = end
        needed = self._given * self._down // self._up - self._half + 1
        drop = min(max(needed - self._origin, 0), self._buffer.size)
        self._buffer = self._buffer[drop:].copy()
        self._origin += drop
        return np.concatenate(parts)

    def _block(self, windows: PcmF, first: int, end: int) -> PcmF:
        instants = np.arange(first, end, dtype=np.int64) * self._down
        at = instants // self._up - (self._half - 1 + self._origin)  # [outputs], rows of windows
        if self._up > FEW_PHASES:
            rows = instants % self._up * len(self._bank) // self._up
            found: PcmF = np.einsum("ij,ij->i", windows[at], self._bank[rows])
            return found
        out = np.empty(end - first, dtype=np.float32)
        for k in range(min(self._up, out.size)):  # rows of one phase are evenly spaced: no copy of them
            spaced = windows[at[k] : at[-1] + 1 : self._down][: out[k :: self._up].size]
            np.einsum("ij,j->i", spaced, self._bank[instants[k] % self._up], out=out[k :: self._up])
        return out


def resample(pcm: Pcm, source_rate: int, target_rate: int) -> PcmF:
    """A whole signal, int16 or float32 [n] → float32 [ceil(n · target_rate / source_rate)]."""
    resampler = Resampler(source_rate, target_rate)
    return np.concatenate((resampler.feed(pcm), resampler.flush()))
