"""How messages get from one named party to another; the parties only see `Endpoint`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mstar.messages import Message


class Endpoint(Protocol):
    """One party's end of the bus."""

    @property
    def name(self) -> str: ...

    def send(self, to: str, message: Message) -> None:
        """Never blocks: what the transport does not take now waits in a bounded overflow.

        Raises BusOverflow when that is full: the peer has stopped reading.
        """
        ...

    def receive(self) -> Sequence[Message]:
        """All that has arrived, in order per sender; never blocks."""
        ...

    def forget(self, peer: str) -> None:
        """A party is gone for good: drop what waits for it. Another one may take its name."""
        ...

    def on_arrival(self, wake: Callable[[], None]) -> None:
        """`wake` is called (on the receiver's loop) when there is something to receive."""
        ...

    def close(self) -> None: ...


class BusOverflow(Exception):
    """A peer has not read for so long that its bounded overflow is full."""
