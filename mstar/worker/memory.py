"""Requests whose next step an engine could not place in memory: who waits, who gives way, who is refused (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mstar.engine.api import Deferred
from mstar.worker.state import RequestState

PATIENCE = 5.0
"""Seconds after which a request that still finds no memory is refused, though those that hold it go on."""
PREEMPTIONS = 3
"""How often a request may be made to give way: then it keeps what it has, so that two do not drive each other out."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: RequestState
    component: str
    outcome: Deferred
    since: float


class MemoryQueue:
    """Times are seconds of the worker's clock."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, request: RequestState, component: str, outcome: Deferred, now: float) -> None:
        """The request's step was deferred; it is not offered again before `offer_again`."""
        request.deferred = True
        before = self._waiting.get(request.name)
        self._waiting[request.name] = _Waiting(request, component, outcome, before.since if before else now)

    def served(self, request: RequestState) -> None:
        """The request took a step, or is over."""
        request.deferred = False
        self._waiting.pop(request.name, None)

    def offer_again(self) -> None:
        """Memory may have become free: all that wait may try again."""
        for each in self._waiting.values():
            each.request.deferred = False

    def relief(
        self, find: Callable[[str], RequestState | None], kind: Callable[[RequestState], int]
    ) -> tuple[RequestState, str] | None:
        """Who gives way, and in which component: the least urgent holder, for the most urgent request that waits.

        `kind`: see `Pressure`. Of two requests of a kind the one that began later gives way.
        """

        def urgency(request: RequestState) -> tuple[int, int]:
            return kind(request), request.order

        tried = [each for each in self._waiting.values() if each.request.deferred]
        for each in sorted(tried, key=lambda each: urgency(each.request)):
            holders = [request for name in each.outcome.preemptable if (request := find(name)) is not None]
            giving = [one for one in holders if one.preempted < PREEMPTIONS and urgency(one) > urgency(each.request)]
            if giving:
                return max(giving, key=urgency), each.component
        return None

    def overdue(self, now: float) -> list[tuple[RequestState, str]]:
        """Requests that are refused, with what the engine said last, the newest first.

        Those whose patience is over; at once where all that hold the memory wait for it as well.
        """
        late = [each for each in self._waiting.values() if now >= each.since + PATIENCE or self._stuck(each)]
        return [(each.request, each.outcome.reason) for each in sorted(late, key=lambda each: -each.since)]

    def next_wake(self) -> float | None:
        """When the first request's patience is over."""
        return min((each.since + PATIENCE for each in self._waiting.values()), default=None)

    def _stuck(self, each: _Waiting) -> bool:
        holders = [self._waiting.get(name) for name in each.outcome.holders]
        return bool(holders) and each.request.deferred and all(one and one.request.deferred for one in holders)
