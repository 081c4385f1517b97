"""Keeps what is asked of a session of the runtime: for sessions that have no conversation core."""

from __future__ import annotations

from collections.abc import Callable

from mstar.client import Emission, RequestEnded
from mstar.client import Session as Runtime
from mstar.client.calls import packed
from mstar.client.session import Event
from server.record.entries import Called, Closed, Emitted, Entry, Opened, TaskEnded
from server.record.sums import shown, sum_of

NOTHING = 0
"""Checksum of no commands: there is no core."""


def number(request: str) -> int:
    """The number of a request in its session."""
    return int(request.rpartition(".")[2])


class TapedCalls:
    """Looks on at a session from its beginning on. Emissions are those that the session's owner is given."""

    def __init__(
        self, runtime: Runtime, opened: Opened, keep: Callable[[Entry], None], clock: Callable[[], float]
    ) -> None:
        self._keep = keep
        self._clock = clock
        keep(opened)
        runtime.on_call = lambda call: keep(Called(clock(), packed(call)))
        runtime.on_event = self._event

    def _event(self, event: Event) -> None:
        key, now = number(event.request), self._clock()
        match event:
            case Emission(output=output, index=index, value=value):
                self._keep(Emitted(now, key, output, index, sum_of(value), shown(value), NOTHING))
            case RequestEnded(status=status, code=code, cause=cause):
                self._keep(TaskEnded(now, key, status, code, cause, NOTHING))

    def close(self) -> None:
        """The session is over."""
        self._keep(Closed(self._clock()))
