"""Time as a value that is handed in: monotonic seconds, or a clock that a test turns by hand (torch-free)."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since an arbitrary fixed moment; never goes back."""
        ...


class MonotonicClock:
    def now(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock for tests."""

    def __init__(self, at: float = 0.0) -> None:
        self._at = at

    def now(self) -> float:
        return self._at

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("a clock does not go back")
        self._at += seconds
