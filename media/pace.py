"""When sound may leave: absolute deadlines for a paced track, a bound on running ahead for a socket.

Times are arguments: seconds of any monotonic clock. Nothing here sleeps or reads a clock.
"""

from __future__ import annotations


class Pacer:
    """Deadlines of equal frames: frame n is due at anchor + n · frame / rate, so errors do not add up.

    A caller later than `stall` moves the anchor instead of sending the missed frames in a burst. `frame` in samples,
    `rate` in Hz, `stall` in seconds.
    """

    def __init__(self, rate: int, frame: int, *, stall: float = 0.120) -> None:
        if rate < 1 or frame < 1 or stall < 0:
            raise ValueError(f"rate and frame must be positive, stall not negative: {rate}, {frame}, {stall}")
        self.rate = rate
        self.frame = frame
        self.stall = stall
        self.index = 0
        """Number of the frame that `next` gives a deadline to."""
        self.stalls = 0
        """How often the anchor moved."""
        self._anchor: float | None = None

    @property
    def position(self) -> int:
        """First sample of frame `index`: its pts. Runs on without gaps, stalls included."""
        return self.index * self.frame

    def due(self, index: int) -> float | None:
        """Deadline of a frame under the present anchor; None before the first `next`."""
        return None if self._anchor is None else self._anchor + index * self.frame / self.rate

    def next(self, now: float) -> float:
        """Deadline of frame `index`, then count it as sent. Sleep until then (not at all if it is past), then send."""
        if self._anchor is None:
            self._anchor = now  # frame 0
        due = self._anchor + self.index * self.frame / self.rate
        if now - due > self.stall:
            self._anchor += now - due
            self.stalls += 1
            due = now
        self.index += 1
        return due


class AheadLimiter:
    """How much may be sent to a client that plays by itself, so that at most `ahead` seconds wait there.

    The assumed playout begins with the first sample sent, runs in real time, stands still when it has caught up and
    goes on with the next sample.
    """

    def __init__(self, rate: int, *, ahead: float = 2.0) -> None:
        if rate < 1 or ahead <= 0:
            raise ValueError(f"rate and ahead must be positive: {rate}, {ahead}")
        self.rate = rate
        self.limit = round(ahead * rate)
        self.sent = 0
        """Samples sent since the start or the last `drop`."""
        self._anchor = 0.0
        self._played_at_anchor = 0

    def played(self, now: float) -> int:
        """Samples the client has played at most; never more than were sent."""
        elapsed = (now - self._anchor) * self.rate + 1e-3  # a thousandth of a sample for rounding
        return min(self.sent, self._played_at_anchor + max(0, int(elapsed)))

    def allowance(self, now: float) -> int:
        """Samples that may be sent at this time, ≥ 0."""
        return max(0, self.limit - (self.sent - self.played(now)))

    def ready_at(self, samples: int, now: float) -> float:
        """Earliest time ≥ now at which `samples` (at most `limit` of them count) may be sent."""
        missing = min(samples, self.limit) - self.allowance(now)
        if missing <= 0:
            return now
        target = self.played(now) + missing
        return max(now, self._anchor + (target - self._played_at_anchor) / self.rate)

    def send(self, samples: int, now: float) -> None:
        """Count `samples` as sent. ValueError beyond the allowance."""
        if not 0 <= samples <= self.allowance(now):
            raise ValueError(f"samples must be 0 to {self.allowance(now)} at this time, not {samples}")
        played = self.played(now)
        if played == self.sent:  # it stands still: its clock starts with these
            self._anchor, self._played_at_anchor = now, played
        self.sent += samples

    def drop(self, now: float) -> int:
        """The client throws away what it has not played (interrupt) → samples it had played; counting restarts at 0."""
        played = self.played(now)
        self.sent = self._played_at_anchor = 0
        self._anchor = now
        return played
