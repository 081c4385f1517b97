"""What a paced track plays: responses one after another, with the count of what was heard of each. No clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from media.frames import Pcm16, to_int16
from media.playout import Drained, PlayoutBuffer, PlayoutLedger
from media.resample import Resampler

RATE = 48_000
"""Samples a second of the track; what Opus takes."""
FRAME = RATE // 50
CAPACITY_SECONDS = 4
"""More than the session core ever sends ahead."""


@dataclass(slots=True)
class _Line:
    """One response's sound on its way: pieces not yet in the buffer, and how much there was in all."""

    resampler: Resampler
    pieces: list[Pcm16] = field(default_factory=list)
    put: int = 0  # track samples given to the buffer
    given: int = 0  # samples at the family's rate
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """So many samples (at the family's rate) of a response have left with the track."""

    response: str
    samples: int


class Speaker:
    """`rate` is the family's speech rate in Hz."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.buffer = PlayoutBuffer(RATE, CAPACITY_SECONDS * RATE)
        self._ledger = PlayoutLedger()
        self._lines: dict[str, _Line] = {}  # in the order in which they are played

    def play(self, response: str, pcm: npt.NDArray[np.float32], *, last: bool) -> None:
        """More sound of a response, float32 [n] at `rate`; `last`: that was all."""
        line = self._lines.get(response)
        if line is None:
            line = self._lines[response] = _Line(Resampler(self.rate, RATE))
        line.given += pcm.size
        line.pieces.append(to_int16(line.resampler.feed(pcm)))
        if last:
            line.pieces.append(to_int16(line.resampler.flush()))
            line.ended = True
        self._refill()

    def clear(self, response: str) -> None:
        """Cut a response off: 8 ms of it fade, the rest is dropped. What plays after it is kept."""
        line = self._lines.pop(response, None)
        if line is None:
            return
        self._ledger.cut(response)
        self._ledger.forget(response)
        if line.put:
            for chunk in self.buffer.clear():
                if chunk.response != response:
                    self.buffer.put(chunk.response, chunk.start, chunk.pcm)
        self._refill()

    def take(self, samples: int = FRAME) -> tuple[Pcm16, list[Heard]]:
        """The track's next frame, int16 [samples], and what was heard with it."""
        taken = self.buffer.take(samples)
        drained = {event.response for event in self._ledger.take(taken.spans) if isinstance(event, Drained)}
        heard = []
        for response in dict.fromkeys(span.response for span in taken.spans):
            line = self._lines[response]
            done = response in drained
            heard.append(Heard(response, line.given if done else self._ledger.heard(response) * self.rate // RATE))
            if done:
                del self._lines[response]
                self._ledger.forget(response)
        self._refill()
        return taken.pcm, heard

    @property
    def waiting(self) -> int:
        """Track samples that were given and not played."""
        return self.buffer.queued + sum(piece.size for line in self._lines.values() for piece in line.pieces)

    def _refill(self) -> None:
        """Move the sound of the first response that has not ended, and of those before it, into the buffer."""
        for response, line in list(self._lines.items()):
            while line.pieces:
                piece = line.pieces.pop(0)
                accepted = self.buffer.put(response, line.put, piece)
                line.put += accepted
                if accepted < piece.size:
                    line.pieces.insert(0, piece[accepted:])
                    return
            if not line.ended:
                return
            self.buffer.end(response)
            if self._ledger.end(response, line.put):
                del self._lines[response]  # everything had left before its end was known
                self._ledger.forget(response)
