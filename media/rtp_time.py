"""When media was captured: a track's RTP clock on its sender's wall clock, and that one on ours (pure; seconds)."""

from __future__ import annotations

from collections import deque

from media.jitter import signed_distance

NTP_EPOCH = 2_208_988_800
"""Seconds between 1900, where NTP's time begins, and 1970."""
KEPT = 256


def unix_of(ntp: int) -> float:
    """A 64 bit NTP timestamp as seconds since 1970 (RFC 5905, 6)."""
    return ntp / 2**32 - NTP_EPOCH


class RtpClock:
    """One track's 32 bit timestamps as the sender's wall clock, by its reports (RFC 3550, 6.4.1)."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._report: tuple[float, int] | None = None

    def reported(self, ntp: int, rtp: int) -> float | None:
        """A sender report said that both are the same moment → its wall clock; None for a report of a clock unset."""
        if not ntp:
            return None
        self._report = (unix_of(ntp), rtp)
        return self._report[0]

    def wall(self, rtp: int) -> float | None:
        """None before the first report."""
        if self._report is None:
            return None
        at, reference = self._report
        return at + signed_distance(rtp, reference, 32) / self.rate


class Offset:
    """A foreign clock on ours: what it stamped can not have come before, so the quickest of the last ones bounds it."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=KEPT)

    def arrived(self, stamp: float, now: float) -> None:
        """Something stamped there came here at `now`."""
        self._seen.append(now - stamp)

    def ours(self, stamp: float) -> float | None:
        """None before anything came."""
        return stamp + min(self._seen) if self._seen else None
