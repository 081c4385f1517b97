"""Bounds on what one client, and all together, may ask for."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

FRAME_BYTES = 32 * 1024 * 1024
"""Longest WebSocket frame; 15 MiB of sound in base64 are 20 MiB."""
APPEND_BYTES = 15 * 1024 * 1024
"""Most sound in one `input_audio_buffer.append`."""
BODY_BYTES = 1024 * 1024
"""Longest body of an HTTP request."""
ERRORS_PER_MINUTE = 120
"""A client with more than this is not one."""


class ErrorBudget:
    """Counts a client's mistakes over the last minute."""

    def __init__(self, most: int = ERRORS_PER_MINUTE) -> None:
        self._most = most
        self._times: deque[float] = deque(maxlen=most + 1)

    def spend(self, now: float) -> bool:
        """One more mistake at `now` seconds → whether that is still tolerated."""
        self._times.append(now)
        return len(self._times) <= self._most or now - self._times[0] > 60


class Full(Exception):
    """No session is free."""


class Admission:
    """How many sessions there may be at once; none while the server drains."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self.draining = False
        self._empty = asyncio.Event()
        self._empty.set()

    def enter(self) -> Seat:
        """Raises Full."""
        if self.draining or self.held >= self.most:
            raise Full
        self.held += 1
        self._empty.clear()
        return Seat(self)

    def give_back(self) -> None:
        """A session has ended."""
        self.held -= 1
        if not self.held:
            self._empty.set()

    async def empty(self, seconds: float) -> bool:
        """Wait until no session is left → whether that was within `seconds`."""
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Seat:
    """One session's place; left once."""

    def __init__(self, admission: Admission) -> None:
        self._admission: Admission | None = admission

    def leave(self) -> None:
        if self._admission is not None:
            self._admission.give_back()
            self._admission = None

    def __enter__(self) -> Seat:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
