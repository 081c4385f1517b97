"""What is asked of a worker that is being replaced: it waits, bounded in number and in time (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mstar.messages import OpenSession, StartRequest

MOST = 1024

Held = OpenSession | StartRequest


@dataclass(frozen=True, slots=True)
class Waiter:
    """A message, and who is told if it comes to nothing."""

    message: Held
    client: str
    due: float


class Waiting:
    """In order of arrival; `seconds` after that a message is let go of."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiters: list[Waiter] = []

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._waiters)

    def hold(self, message: Held, client: str, now: float) -> bool:
        """False if too many wait."""
        if len(self._waiters) >= MOST:
            return False
        self._waiters.append(Waiter(message, client, now + self._seconds))
        return True

    def take(self, wanted: Callable[[Held], bool]) -> list[Held]:
        """Take out what is wanted."""
        taken = [each.message for each in self._waiters if wanted(each.message)]
        self._waiters = [each for each in self._waiters if not wanted(each.message)]
        return taken

    def overdue(self, now: float) -> list[Waiter]:
        """Take out what has waited for too long."""
        late = [each for each in self._waiters if each.due <= now]
        self._waiters = [each for each in self._waiters if each.due > now]
        return late
