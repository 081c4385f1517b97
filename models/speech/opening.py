"""How a response begins: leading silence is cut to 20 ms and the first 5 ms rise from zero (pure).

Both are functions of the sample position, so that a stream equals the same sound in one piece.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

THRESHOLD = 10 ** (-45 / 20)  # of full scale
KEPT = 0.020  # seconds of silence before the first sound
RAMP = 0.005  # seconds


@dataclass(frozen=True, slots=True)
class Opening:
    """Where a response's sound stands: `quiet` waits for the first sound (None once it was there)."""

    quiet: Floats | None
    emitted: int = 0  # samples given out
    trimmed: int = 0  # samples cut away at the beginning


def fresh() -> Opening:
    """Before the first sample of a response."""
    return Opening(np.zeros(0, np.float32))


def open_sound(state: Opening, pcm: Floats, rate: int) -> tuple[Floats, Opening]:
    """The next samples [n] → what is given out of them (and of what waited), and the next state."""
    trimmed = state.trimmed
    if state.quiet is not None:
        pcm = np.concatenate((state.quiet, pcm))
        loud = np.flatnonzero(np.abs(pcm) >= THRESHOLD)
        kept = round(KEPT * rate)
        start = max(0, (int(loud[0]) if len(loud) else len(pcm)) - kept)
        pcm, trimmed = pcm[start:], trimmed + start
        if not len(loud):
            return pcm[:0], Opening(pcm, state.emitted, trimmed)
    length = round(RAMP * rate)
    if state.emitted < length:
        position = np.arange(state.emitted, state.emitted + len(pcm), dtype=np.float32)
        pcm = pcm * np.minimum((position + 1) / length, 1).astype(np.float32)
    return pcm, Opening(None, state.emitted + len(pcm), trimmed)
