"""What a worker holds and what it has done, for those that ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mstar.transport.api import Transport
from mstar.worker.memory import MemoryQueue
from mstar.worker.ready import Ready
from mstar.worker.state import RequestState, SessionState
from mstar.worker.steps import Hands, Steps


class Account:
    """Counts over the parts of one worker."""

    def __init__(
        self,
        sessions: Mapping[str, SessionState],
        steps: Steps,
        ready: Ready,
        memory: MemoryQueue,
        hands: Hands,
        transport: Transport,
    ) -> None:
        self._sessions = sessions
        self._steps = steps
        self._ready = ready
        self._memory = memory
        self._hands = hands
        self._transport = transport

    def requests(self) -> list[RequestState]:
        """All that have begun here and not ended."""
        return [request for session in self._sessions.values() for request in session.requests.values()]

    def census(self, parked: int) -> dict[str, int]:
        """What is held now, besides the engines'; `parked` messages among it."""
        sessions = self._sessions.values()
        requests = self.requests()
        live = [live for session in sessions for live in session.live.values()]
        return {
            "sessions": len(self._sessions),
            "requests": len(requests),
            "cursors": sum(len(request.cursors) for request in requests),
            "buffers": sum(len(request.buffers) for request in requests),
            "runnable": len(self._ready),
            "in_flight": len(self._steps.flight),
            "waiting_for_memory": len(self._memory),
            "errands": sum(len(request.errands) for request in requests),
            "guests": sum(len(request.guests) for request in requests),
            "left": sum(len(request.left) for request in requests),
            "images": len(self._hands.images),
            "parked": parked,
            "outlets": sum(len(request.outlets) for request in requests),
            **self._transport.census(),
            "early_messages": sum(len(session.early) for session in sessions),
            "listeners": sum(len(each.listeners) for each in live),
            "wanted_slices": sum(len(each.wants) for each in live),
        }

    def told(self, late: int) -> dict[str, int]:
        """Totals since the start, besides the engines'; streams as they are now."""
        buffers = [buffer for request in self.requests() for buffer in request.buffers.values()]
        return {
            "firings": self._steps.firings,
            "stale_outcomes": self._steps.stale,
            "late_messages": late,
            "emissions": self._hands.outflow.emissions,
            "firings_sent": self._hands.away.firings,
            "images_given": self._hands.images.moves,
            **self._transport.counters(),
            "steps": self._steps.done,
            "stream_depth": sum(buffer.depth for buffer in buffers),
            "stream_dropped": sum(buffer.dropped for buffer in buffers),
        }


def total(own: Mapping[str, int], engines: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The worker's counts, with the engines' summed beside them."""
    summed = dict(own)
    for each in engines:
        for name, count in each.items():
            summed[f"engine_{name}"] = summed.get(f"engine_{name}", 0) + count
    return summed
