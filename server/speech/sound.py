"""A context's sound on its way out: the family's samples as bytes of a format, as a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from media.codecs import Encoder, encoder
from media.codecs import Format as Coded
from media.frames import PcmF, ramp, to_int16
from media.resample import Resampler
from mstar.errors import Rejected

Coding = Coded | Literal["f32"]
"""`f32`: float32 little-endian, without header."""
COMPRESSED = frozenset({"mp3", "opus", "aac"})
FADE_SECONDS = 0.008
_FRAMED = COMPRESSED | {"flac"}
_INAUDIBLE = 10 ** (-60 / 20)
_FRAMED_RATES = (8000, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)  # of mp3 and aac alike
_OPUS_RATE = 48_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What a client wants: `rate` in Hz, `bit_rate` in bit/s (compressed forms; None = the encoder's own)."""

    coding: Coding
    rate: int
    bit_rate: int | None = None

    @property
    def bytes_per_sample(self) -> int:
        """Of the forms without frames: pcm, wav, G.711, f32."""
        return {"f32": 4, "pcmu": 1, "pcma": 1}.get(self.coding, 2)


def rate_for(coding: Coding, own: int, asked: int | None) -> int:
    """The rate of a format: the one asked for, else the family's `own` or the next that the format has.

    Raises Rejected for one that it does not have.
    """
    if coding not in COMPRESSED:
        return asked or own
    rates = (_OPUS_RATE,) if coding == "opus" else _FRAMED_RATES
    if asked is None:
        return min((rate for rate in rates if rate >= own), default=rates[-1])
    if asked not in rates:
        known = ", ".join(str(rate) for rate in rates)
        raise Rejected(f"'sample_rate' of {coding} can be {known}; not {asked}.", param="sample_rate")
    return asked


class Outlet:
    """float32 [n] at `rate` Hz → bytes of a shape. What it gives out does not depend on how the sound was cut."""

    def __init__(self, rate: int, shape: Shape) -> None:
        self.shape = shape
        self._rate = rate
        self._last = np.float32(0)
        self._given = False  # bytes
        self._resampler = Resampler(rate, shape.rate)
        self._encoder: Encoder | None = None
        if shape.coding != "f32":
            self._encoder = encoder(shape.coding, shape.rate, bit_rate=shape.bit_rate)

    def size(self, pcm: PcmF) -> int:
        """Bytes of a piece of sound in the forms without frames; in others it has fewer."""
        return len(pcm) * self.shape.rate * self.shape.bytes_per_sample // self._rate

    def feed(self, pcm: PcmF) -> bytes:
        return self._bytes(self._resampler.feed(pcm))

    def border(self) -> bytes:
        """The sound so far has to be out: what the filter holds (some 2 ms). Frames of compressed forms stay."""
        return self._bytes(self._resampler.flush())

    def forget(self) -> None:
        """What the filter holds is not wanted."""
        self._resampler.reset()

    def finish(self) -> bytes:
        """The rest; the outlet is used up."""
        rest = self.border()
        return rest if self._encoder is None else rest + self._encoder.finish()

    def faded(self, then: PcmF) -> bytes:
        """What ends a sound that is cut off: it falls to silence within 8 ms; the outlet is used up.

        `then` is what would have come next; where that is not known the last sample is held. Empty where nothing was
        given out. In forms of frames the frames that were begun come with it.
        """
        if not self._given:
            return b""
        size = round(FADE_SECONDS * self.shape.rate)
        next_ = self._resampler.feed(then)
        if len(next_) < size:
            next_ = np.concatenate((next_, self._resampler.flush()))
        last = next_[-1] if len(next_) else self._last
        pcm = np.concatenate((next_, np.full(size, last, np.float32)))[:size]
        if self._encoder is None:
            return (pcm * ramp(size + 1)[-2::-1]).astype("<f4", copy=False).tobytes()
        if self.shape.coding not in _FRAMED and np.abs(pcm).max() < _INAUDIBLE:
            return b""
        return self._encoder.cut(to_int16(pcm))

    def _bytes(self, pcm: PcmF) -> bytes:
        if not len(pcm):
            return b""
        self._last = pcm[-1]
        out = pcm.astype("<f4", copy=False).tobytes() if self._encoder is None else self._encoder.feed(to_int16(pcm))
        self._given = self._given or bool(out)
        return out
