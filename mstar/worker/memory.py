"""Requests whose next step an engine could not place in memory: who waits, who gives way, who is refused (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mstar.engine.api import Deferred
from mstar.worker.state import RequestState

PATIENCE = 5.0
"""Seconds after which a request that still finds no memory is refused, though those that hold it go on."""
PREEMPTIONS = 3
"""How often a request gives way to others that could as well wait: then it keeps what it has while anyone goes on."""


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
        self._behind: dict[str, tuple[RequestState, str]] = {}  # who gave way → until this request was served
        self._tried: set[str] = set()  # those who wait and were refused memory since some of it last came free

    def __len__(self) -> int:
        return len(self._waiting.keys() | self._behind.keys())

    def __bool__(self) -> bool:
        return bool(self._waiting or self._behind)

    def wait(self, request: RequestState, component: str, outcome: Deferred, now: float) -> None:
        """The request's step was deferred; it is not offered again before `offer_again`."""
        request.deferred = True
        self._tried.add(request.name)
        before = self._waiting.get(request.name)
        self._waiting[request.name] = _Waiting(request, component, outcome, before.since if before else now)

    def served(self, request: RequestState) -> None:
        """The request took a step, or is over."""
        request.deferred = False
        if not self:
            return
        self._behind.pop(request.name, None)
        for name in [name for name, (_, first) in self._behind.items() if first == request.name]:
            self._behind.pop(name)[0].deferred = False
        if self._waiting.pop(request.name, None) is not None:
            self._tried.clear()

    def offer_again(self) -> None:
        """Memory may have become free: all that wait may try again."""
        self._tried.clear()
        for each in self._waiting.values():
            each.request.deferred = each.request.name in self._behind

    def relief(
        self, find: Callable[[str], RequestState | None], short: Callable[[RequestState], bool]
    ) -> tuple[RequestState, str] | None:
        """Who gives way, and in which component: the least urgent holder, for the most urgent request that waits.

        A request that has not begun makes nobody give way. Of those that have, ones that run `short` of sound are more
        urgent than others, and the older than the younger: so the oldest always goes on. Who gives way is not offered
        again before the other was served.
        """

        def urgency(request: RequestState) -> tuple[bool, int]:
            return not short(request), request.order

        tried = [each for each in self._waiting.values() if each.request.name in self._tried and each.outcome.begun]
        for each in sorted(tried, key=lambda each: urgency(each.request)):
            most = math.inf if self._stuck(each) else PREEMPTIONS
            holders = [request for name in each.outcome.preemptable if (request := find(name)) is not None]
            giving = [one for one in holders if one.preempted < most and urgency(one) > urgency(each.request)]
            if giving:
                last = max(giving, key=urgency)
                last.deferred = True
                self._behind[last.name] = (last, each.request.name)
                return last, each.component
        return None

    def overdue(self, now: float) -> list[tuple[RequestState, str]]:
        """Requests that are refused, with what the engine said last, the newest first.

        Those whose patience is over; at once where all that hold the memory wait for it as well.
        """
        late = [each for each in self._waiting.values() if now >= each.since + PATIENCE or self._stuck(each)]
        return [
            (each.request, each.outcome.reason)
            for each in sorted(late, key=lambda each: (-each.since, -each.request.order))
        ]

    def next_wake(self) -> float | None:
        """When the first request's patience is over."""
        return min((each.since + PATIENCE for each in self._waiting.values()), default=None)

    def _stuck(self, each: _Waiting) -> bool:
        holders = each.outcome.holders
        return bool(holders) and self._tried.issuperset((each.request.name, *holders))
