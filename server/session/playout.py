"""Sound of one response on its way to the listener: what may go now, what was heard, what may be made."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from media.pace import AheadLimiter

PcmF = npt.NDArray[np.float32]

AHEAD_SECONDS = 2.0
"""A listener is never sent more than this ahead of what it plays."""
CHUNK_SECONDS = 0.1
"""Sound goes out in pieces of this length; the last one of a response may be shorter."""
CREDIT_STEP_SECONDS = 0.25
"""Credit is granted in steps, so that pieces do not each cost a message."""


class Listener(Protocol):
    """How far the listener of a session's responses has come. Samples at the family's speech rate."""

    sent: int

    def played(self, now: float, /) -> int: ...

    def allowance(self, now: float, /) -> int: ...

    def ready_at(self, samples: int, now: float, /) -> float: ...

    def send(self, samples: int, now: float, /) -> None: ...

    def drop(self, now: float, /) -> int: ...


def assumed_listener(rate: int) -> Listener:
    """A client that plays by itself, in real time from the first sample it is sent on (WebSocket)."""
    return AheadLimiter(rate, ahead=AHEAD_SECONDS)


class ReportedListener:
    """A listener whose playout the server itself counts (WebRTC): `report` says how far it is."""

    def __init__(self, rate: int) -> None:
        self.limit = round(AHEAD_SECONDS * rate)
        self.sent = 0
        self._played = 0

    def report(self, played: int) -> None:
        self._played = max(self._played, min(played, self.sent))

    def played(self, _now: float) -> int:
        return self._played

    def allowance(self, now: float) -> int:
        return max(0, self.limit - (self.sent - self.played(now)))

    def ready_at(self, samples: int, now: float) -> float:
        """Now, or never: a report has to come first."""
        return now if min(samples, self.limit) <= self.allowance(now) else float("inf")

    def send(self, samples: int, _now: float) -> None:
        self.sent += samples

    def drop(self, _now: float) -> int:
        played, self._played, self.sent = self._played, 0, 0
        return played


@dataclass(frozen=True, slots=True)
class Piece:
    """Sound [n] of a response from sample `start` on; `slack` as in `PlayAudio`."""

    start: int
    pcm: PcmF
    slack: float | None = None


class Playout:
    """Queue of one response's sound between its producer and the session's listener."""

    def __init__(self, rate: int, listener: Listener) -> None:
        self.rate = rate
        self.sent = 0
        """Samples given to the client."""
        self.closed = False
        """Whether the producer has made everything."""
        self.underruns = 0
        """How often the listener had played everything before more came."""
        self._chunk = round(CHUNK_SECONDS * rate)
        self._listener = listener
        self._before = -1  # the listener's count when this response's first sample went
        self._queue: deque[PcmF] = deque()
        self._waiting = 0
        self._heard = 0
        self._granted = 0

    def offer(self, pcm: PcmF) -> None:
        if pcm.size:
            self._queue.append(pcm)
            self._waiting += pcm.size

    @property
    def drained(self) -> bool:
        """Everything was made and given to the client."""
        return self.closed and not self._waiting

    def take(self, now: float) -> list[Piece]:
        """What may go to the client at this time."""
        pieces: list[Piece] = []
        while self._waiting and (size := self._size()) and self._listener.allowance(now) >= size:
            left = self._listener.sent - self._listener.played(now)
            slack = left / self.rate if self._before >= 0 else None
            if self._before < 0:
                self._before = self._listener.sent
            elif left == 0:
                self.underruns += 1
            pieces.append(Piece(self.sent, self._pop(size), slack))
            self._listener.send(size, now)
            self.sent += size
        return pieces

    def next(self, now: float) -> float | None:
        """When the next piece may go; None if there is none, inf if a report must come first."""
        size = self._size() if self._waiting else 0
        return self._listener.ready_at(size, now) if size else None

    def heard(self, now: float) -> int:
        """Samples of this response that have been heard, at most."""
        if self._before >= 0:
            self._heard = max(self._heard, min(self.sent, self._listener.played(now) - self._before))
        return self._heard

    def report(self, heard: int) -> None:
        """A counting listener has heard `heard` samples of this response."""
        self._heard = max(self._heard, min(heard, self.sent))
        if self._before >= 0 and isinstance(self._listener, ReportedListener):
            self._listener.report(self._before + self._heard)

    def stop(self, now: float) -> int:
        """The listener stops playing this → samples heard; the rest is dropped."""
        heard = self.heard(now)
        self.abandon()
        if self._before >= 0:
            self._listener.drop(now)
            self._before = -1
        return heard

    def abandon(self) -> None:
        """There will be no more sound; what was not sent is dropped."""
        self._queue.clear()
        self._waiting = 0
        self.closed = True

    def credit(self) -> int | None:
        """Sample up to which the producer may go, if that has moved by a step."""
        upto = self.sent + round(AHEAD_SECONDS * self.rate)
        if self.closed or (self._granted and upto - self._granted < CREDIT_STEP_SECONDS * self.rate):
            return None
        self._granted = upto
        return upto

    def _size(self) -> int:
        """Samples of the next piece, 0 while it is too short and more will come."""
        if self._waiting >= self._chunk:
            return self._chunk
        return self._waiting if self.closed or self._waiting * 5 >= self._chunk else 0

    def _pop(self, size: int) -> PcmF:
        parts: list[PcmF] = []
        missing = size
        while missing:
            head = self._queue.popleft()
            parts.append(head[:missing])
            if head.size > missing:
                self._queue.appendleft(head[missing:])
            missing -= parts[-1].size
        self._waiting -= size
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
