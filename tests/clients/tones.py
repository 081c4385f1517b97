"""Words of the toy family as sound: what a client says and hears."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from media.frames import to_bytes
from models.toy.language import tone_of

RATE = 24_000


def spoken(*words: str, each: float = 0.4) -> bytes:
    """Words one after another as pcm16 at 24 kHz."""
    at = np.arange(round(each * RATE)) / RATE
    sound = [0.3 * np.sin(2 * np.pi * tone_of(word) * at) for word in words]
    return to_bytes(np.concatenate(sound).astype(np.float32))


def silence(seconds: float) -> bytes:
    return bytes(2 * round(seconds * RATE))


def tones(sound: bytes, word_seconds: float = 0.25) -> list[float]:
    """Loudest frequency of each word's stretch, Hz."""
    pcm: npt.NDArray[np.int16] = np.frombuffer(sound, dtype="<i2")
    size = round(word_seconds * RATE)
    found = []
    for start in range(0, len(pcm) - size // 2, size):
        window = pcm[start : start + size].astype(np.float64)
        spectrum = np.abs(np.fft.rfft(window * np.hanning(len(window))))
        found.append(float(spectrum.argmax()) * RATE / len(window))
    return found
