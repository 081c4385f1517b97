"""A peer's sound track as one unbroken stream at the family's rate. No clock, no I/O."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from media.frames import Pcm16
from media.jitter import GapFiller
from media.resample import Resampler

PcmF = npt.NDArray[np.float32]

MOST_SILENCE_SECONDS = 2.0
"""A longer gap in the peer's time line is not lived through: the turn that was open is over by then."""


class Hearing:
    """`rate` in Hz is what comes out. The track's own is learned from its frames, and may change with its codec."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.filled = 0.0
        """Seconds made up for lost packets."""
        self._filler: GapFiller | None = None
        self._resampler: Resampler | None = None
        self._ahead = 0.0  # seconds of silence given while nothing came

    def feed(self, pts: int, rate: int, pcm: Pcm16) -> PcmF:
        """A frame: int16 [n] at `rate`, its first sample at `pts` (in samples) → float32 [m] at `self.rate`."""
        if self._filler is None or self._resampler is None or self._filler.rate != rate:
            self._filler, self._resampler = GapFiller(rate), Resampler(rate, self.rate)
        filled = self._filler.feed(pts, pcm)
        self.filled += filled.filled / rate
        gap = min(filled.muted / rate, MOST_SILENCE_SECONDS) - self._ahead
        self._ahead = 0.0
        sound = filled.pcm
        if filled.muted and gap > 0:
            sound = np.concatenate((np.zeros(round(gap * rate), dtype=np.int16), sound))
        return self._resampler.feed(sound)

    def nothing(self, seconds: float) -> PcmF:
        """Nothing has come for so long: silence in its place, so that a turn can end → float32 [m]."""
        if self._filler is None or self._resampler is None:
            return np.zeros(0, dtype=np.float32)  # the track has not begun
        self._ahead += seconds
        return self._resampler.feed(np.zeros(round(seconds * self._filler.rate), dtype=np.int16))
