"""Sound of the benchmark: loudness, rates, where speech begins and ends (pure)."""

from __future__ import annotations

import base64

import numpy as np
import numpy.typing as npt

Pcm = npt.NDArray[np.float32]

RATE = 24_000
"""Samples a second on the WebSocket (`audio/pcm`)."""
AUDIBLE = 10 ** (-45 / 20)
"""Amplitude from which on a sample is not silence: −45 dBFS."""


def first_loud(pcm: Pcm) -> int | None:
    """Index of the first sample that is not silence."""
    loud = np.flatnonzero(np.abs(pcm) >= AUDIBLE)
    return int(loud[0]) if len(loud) else None


def trimmed(pcm: Pcm) -> Pcm:
    """From the first to the last sample that is not silence. Raises ValueError for silence."""
    loud = np.flatnonzero(np.abs(pcm) >= AUDIBLE)
    if not len(loud):
        raise ValueError("pcm: holds silence only")
    return pcm[loud[0] : loud[-1] + 1]


def from_wire(text: str) -> Pcm:
    """Base64 of pcm16 → float32 [n]."""
    return as_float(np.frombuffer(base64.b64decode(text), dtype="<i2"))


def as_float(pcm: npt.NDArray[np.int16]) -> Pcm:
    """int16 → float32 in [-1, 1)."""
    return pcm.astype(np.float32) / np.float32(32768)


def to_wire(pcm: Pcm) -> str:
    """float32 [n] → base64 of pcm16."""
    return base64.b64encode((np.clip(pcm, -1, 1) * 32767).astype("<i2").tobytes()).decode()
