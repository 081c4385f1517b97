"""The robot's monotonic clock as the server sees it, and where in time a chunk of actions lies (pure; seconds)."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

PINGS = 16
ARRIVALS = 128
LEAP = 0.1
"""Seconds by which a ping may contradict the others: more than clocks drift in the time of sixteen."""


class RobotClock:
    """How far the robot's clock is from the server's.

    A ping that came back tells it to within half its round trip; of the last ones the quickest counts. Before any has,
    frames do: none arrives before it was captured, so the quickest of the last ones bounds it.
    """

    def __init__(self) -> None:
        self._pings: deque[tuple[float, float, float | None]] = deque(maxlen=PINGS)  # (round trip, offsets)
        self._arrivals: deque[float] = deque(maxlen=ARRIVALS)

    @property
    def pings(self) -> int:
        return len(self._pings)

    def ponged(self, sent: float, robot: float, received: float, wall: float | None = None) -> bool:
        """A ping left at `sent` and was back at `received`; the robot's clocks said `robot`, `wall` meanwhile.

        → whether its clock was set since the last: then what was known of it is forgotten.
        """
        middle, trip = (sent + received) / 2, received - sent
        leapt = False
        if self._pings:
            quickest, offset, _ = self._quickest()
            leapt = abs(middle - robot - offset) > (trip + quickest) / 2 + LEAP
        if leapt:
            self._pings.clear()
            self._arrivals.clear()
        self._pings.append((trip, middle - robot, None if wall is None else middle - wall))
        return leapt

    def arrived(self, captured: float, received: float) -> None:
        """A frame of the robot's time `captured` came at `received`."""
        self._arrivals.append(received - captured)

    def robot(self, now: float) -> float | None:
        """The robot's time at the server's time `now`; None before anything came."""
        if self._pings:
            return now - self._quickest()[1]
        return now - min(self._arrivals) if self._arrivals else None

    def ours(self, wall: float) -> float | None:
        """The server's time at which the robot's wall clock said so; None if it never told that clock.

        Of the same ping as the offset above: from the robot's wall clock to its monotonic one no error of it is left.
        """
        offset = self._quickest()[2] if self._pings else None
        return None if offset is None else wall + offset

    def _quickest(self) -> tuple[float, float, float | None]:
        return min(self._pings, key=lambda ping: ping[0])


@dataclass(frozen=True, slots=True)
class Acting:
    """A chunk that was given: row k is for the robot's time `start + k · dt`."""

    start: float
    dt: float
    rows: np.ndarray  # [horizon, action_dim]

    @property
    def end(self) -> float:
        return self.start + len(self.rows) * self.dt

    def rest(self, at: float) -> np.ndarray:
        """The rows from time `at` on; none when it had not begun."""
        first = round((at - self.start) / self.dt)
        return self.rows[first:] if first >= 0 else self.rows[:0]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a new chunk lies: row 0 is for the time `start`; rows before `first` are over already."""

    start: float
    first: int


def place(acting: Acting | None, seen: float, now: float, dt: float, *, standing: bool) -> Place:
    """`seen`: when the chunk's observation was taken; `now`: when it leaves; both on the robot's clock.

    A robot that acted after `seen` is where the first rows would have brought it: they are over. One that stands (has
    nothing to act, or acted it out) has not moved since: its next row is for now.
    """
    acted = 0.0 if standing or acting is None else max(0.0, min(now, acting.end) - seen)
    first = math.ceil(acted / dt - 1e-9)
    stands = standing or acting is None or now >= acting.end
    return Place(now - first * dt if stands else seen, first)
