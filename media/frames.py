"""PCM as numpy arrays: formats, levels, fades.

Everywhere in `media`: one channel, time is counted in samples. `Pcm16` is what travels on wires (full scale 32768),
`PcmF` is what models see (full scale 1.0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Pcm16 = npt.NDArray[np.int16]
PcmF = npt.NDArray[np.float32]
Pcm = Pcm16 | PcmF

FULL_SCALE = 32768
FLOOR_DBFS = -120.0
"""What the level functions give for digital silence."""


def to_float(pcm: Pcm) -> PcmF:
    """int16 or float32 [n] → float32 [n], full scale 1.0. A float32 array is returned as it is."""
    if pcm.dtype == np.float32:
        return pcm.astype(np.float32, copy=False)
    if pcm.dtype == np.int16:
        return pcm.astype(np.float32) / np.float32(FULL_SCALE)
    raise ValueError(f"pcm must be int16 or float32, not {pcm.dtype}")


def to_int16(pcm: Pcm) -> Pcm16:
    """float32 or int16 [n] → int16 [n], rounded to nearest, clipped to -32768 … 32767. NaN becomes 0."""
    if pcm.dtype == np.int16:
        return pcm.astype(np.int16, copy=False)
    if pcm.dtype != np.float32:
        raise ValueError(f"pcm must be int16 or float32, not {pcm.dtype}")
    scaled = np.nan_to_num(pcm * np.float32(FULL_SCALE), nan=0.0, posinf=FULL_SCALE, neginf=-FULL_SCALE)
    clipped: PcmF = np.clip(np.rint(scaled), -FULL_SCALE, FULL_SCALE - 1)
    return clipped.astype(np.int16)


def to_bytes(pcm: Pcm) -> bytes:
    """[n] → 2·n bytes, signed 16 bit little-endian."""
    return to_int16(pcm).astype("<i2", copy=False).tobytes()


def from_bytes(raw: bytes | bytearray | memoryview) -> Pcm16:
    """Signed 16 bit little-endian bytes → int16 [n]. ValueError if the count is odd (see `ByteCarry` for streams)."""
    if len(raw) % 2:
        raise ValueError(f"16 bit pcm needs an even number of bytes, got {len(raw)}")
    return np.frombuffer(raw, dtype="<i2").astype(np.int16)


class ByteCarry:
    """Turns a byte stream cut anywhere into int16 samples: an odd last byte waits for the next piece."""

    def __init__(self) -> None:
        self._odd = b""

    @property
    def pending(self) -> bool:
        """Whether half a sample is waiting."""
        return bool(self._odd)

    def feed(self, raw: bytes | bytearray | memoryview) -> Pcm16:
        """Bytes of any count → the int16 samples that are complete now."""
        joined = self._odd + bytes(raw)
        whole = len(joined) & ~1
        self._odd = joined[whole:]
        return from_bytes(joined[:whole])

    def reset(self) -> None:
        """Forget the waiting byte (the client cleared its buffer)."""
        self._odd = b""


def silence(samples: int) -> Pcm16:
    """int16 zeros [samples]."""
    return np.zeros(samples, dtype=np.int16)


def milliseconds(ms: float, rate: int) -> int:
    """Duration → whole samples, rounded to nearest."""
    return round(ms * rate / 1000)


def ramp(samples: int) -> PcmF:
    """Linear gain [samples] that rises to 1.0 at the last sample and starts just above 0."""
    return np.arange(1, samples + 1, dtype=np.float32) / np.float32(max(samples, 1))


def fade_in(pcm: Pcm16, samples: int) -> Pcm16:
    """Copy of int16 [n] whose first `samples` (at most n) rise from silence. 5–10 ms hide a cut."""
    n = min(samples, pcm.size)
    out = pcm.copy()
    out[:n] = np.rint(out[:n] * ramp(n)).astype(np.int16)
    return out


def fade_out(pcm: Pcm16, samples: int) -> Pcm16:
    """Copy of int16 [n] whose last `samples` (at most n) fall to silence."""
    return fade_in(pcm[::-1], samples)[::-1]


@dataclass(frozen=True, slots=True)
class Level:
    """Loudness of a window in dBFS (0 = full scale, `FLOOR_DBFS` = digital silence)."""

    peak: float
    rms: float


def dbfs(amplitude: float) -> float:
    """Linear amplitude (1.0 = full scale) → dBFS, not below `FLOOR_DBFS`."""
    return max(FLOOR_DBFS, 20 * float(np.log10(amplitude))) if amplitude > 0 else FLOOR_DBFS


def level(pcm: Pcm) -> Level:
    """Peak and RMS of all samples given; an empty window is silent."""
    if pcm.size == 0:
        return Level(FLOOR_DBFS, FLOOR_DBFS)
    x = to_float(pcm).astype(np.float64)
    return Level(dbfs(float(np.abs(x).max())), dbfs(float(np.sqrt(np.mean(x * x)))))


def levels(pcm: Pcm, window: int) -> list[Level]:
    """One `Level` per whole or begun window of `window` samples."""
    if window < 1:
        raise ValueError(f"window must be at least 1 sample, not {window}")
    return [level(pcm[i : i + window]) for i in range(0, pcm.size, window)]


def first_sound(pcm: Pcm, threshold_dbfs: float = -45.0) -> int | None:
    """Index of the first sample louder than the threshold, None if there is none."""
    loud = np.flatnonzero(np.abs(to_float(pcm)) > 10 ** (threshold_dbfs / 20))
    return int(loud[0]) if loud.size else None
