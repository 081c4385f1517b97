"""What is asked of a worker that is being replaced: it waits, bounded in number and in time (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mstar.messages import OpenSession, StartRequest

MOST = 1024

Held = OpenSession | StartRequest


class Waiting:
    """In order of arrival; `seconds` after that a message is let go of."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: list[tuple[float, Held]] = []

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return (message for _, message in self._held)

    def hold(self, message: Held, now: float) -> bool:
        """False if too many wait."""
        if len(self._held) >= MOST:
            return False
        self._held.append((now + self._seconds, message))
        return True

    def take(self, wanted: Callable[[Held], bool]) -> list[Held]:
        """Take out what is wanted."""
        taken = [message for _, message in self._held if wanted(message)]
        self._held = [each for each in self._held if not wanted(each[1])]
        return taken

    def overdue(self, now: float) -> list[Held]:
        """Take out what has waited for too long."""
        late = [message for due, message in self._held if due <= now]
        self._held = [each for each in self._held if each[0] > now]
        return late
