"""Sound between the formats of the Realtime API and what families take and give."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from media.frames import from_bytes, to_bytes, to_int16
from media.g711 import alaw_decode, alaw_encode, mulaw_decode, mulaw_encode
from media.resample import Resampler
from mstar.errors import Rejected
from server.events.session import AudioFormat

PcmF = npt.NDArray[np.float32]


class Incoming:
    """A client's sound in its own format → float32 [n] at the family's rate, as a stream."""

    def __init__(self, given: AudioFormat, rate: int) -> None:
        self.format = given
        self._resampler = Resampler(given.samples_per_second, rate)

    @property
    def bytes_per_second(self) -> int:
        return self.format.samples_per_second * (2 if self.format.type == "audio/pcm" else 1)

    def check(self, raw: bytes, param: str = "audio") -> None:
        """Raises Rejected for half a sample."""
        if self.format.type == "audio/pcm" and len(raw) % 2:
            raise Rejected(
                f"Invalid '{param}': {len(raw)} bytes are no whole number of 16 bit samples.",
                code="invalid_value",
                param=param,
            )

    def feed(self, raw: bytes) -> PcmF:
        """Sound that `check` has passed."""
        match self.format.type:
            case "audio/pcm":
                return self._resampler.feed(from_bytes(raw))
            case "audio/pcmu":
                return self._resampler.feed(mulaw_decode(raw))
            case "audio/pcma":
                return self._resampler.feed(alaw_decode(raw))

    def flush(self) -> PcmF:
        """What the filter still holds (some 2 ms); the next sound starts a new stream."""
        return self._resampler.flush()


class Outgoing:
    """A family's sound, float32 [n] at its speech rate → bytes of an API format, as a stream."""

    def __init__(self, rate: int, wanted: AudioFormat) -> None:
        self.format = wanted
        self._resampler = Resampler(rate, wanted.samples_per_second)

    def feed(self, pcm: PcmF, *, last: bool = False) -> bytes:
        """`last` gives out what the filter holds."""
        out = self._resampler.feed(pcm)
        if last:
            out = np.concatenate((out, self._resampler.flush()))
        match self.format.type:
            case "audio/pcm":
                return to_bytes(out)
            case "audio/pcmu":
                return mulaw_encode(to_int16(out))
            case "audio/pcma":
                return alaw_encode(to_int16(out))


def whole(raw: bytes, given: AudioFormat, rate: int, param: str) -> PcmF:
    """A whole sound in one piece. Raises Rejected for half a sample."""
    incoming = Incoming(given, rate)
    incoming.check(raw, param)
    return np.concatenate((incoming.feed(raw), incoming.flush()))
