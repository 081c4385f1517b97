"""Requests whose next step an engine could not place in memory, and how long each of them has waited."""

from __future__ import annotations

from mstar.worker.state import RequestState

PATIENCE = 5.0
"""Seconds after which a request that still finds no memory is refused: those that hold it may be waiting likewise."""


class MemoryQueue:
    """Times are seconds of the worker's clock."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[RequestState, float, str]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, request: RequestState, reason: str, now: float) -> None:
        """The request's step was deferred; it is not offered again before `offer_again`."""
        request.deferred = True
        _, since, _ = self._waiting.get(request.name, (request, now, reason))
        self._waiting[request.name] = (request, since, reason)

    def served(self, request: RequestState) -> None:
        """The request took a step, or is over."""
        request.deferred = False
        self._waiting.pop(request.name, None)

    def offer_again(self) -> None:
        """Memory may have become free: all that wait may try again."""
        for request, _, _ in self._waiting.values():
            request.deferred = False

    def overdue(self, now: float) -> list[tuple[RequestState, str]]:
        """Requests whose patience is over, with what the engine said last, the newest first."""
        late = [
            (since, request, reason) for request, since, reason in self._waiting.values() if now >= since + PATIENCE
        ]
        return [(request, reason) for _, request, reason in sorted(late, key=lambda each: -each[0])]

    def next_wake(self) -> float | None:
        """When the first request's patience is over."""
        return min((since + PATIENCE for _, since, _ in self._waiting.values()), default=None)
