"""The bus inside one process: messages in order, delivered when the parties are turned (for tests and tools)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from mstar.bus.wire import Envelope, decode, encode
from mstar.messages import Message


class LocalBus:
    """All endpoints of one process. With `encoded=True` each message goes through the wire format."""

    def __init__(self, *, encoded: bool = True) -> None:
        self._encoded = encoded
        self._queues: dict[str, deque[Message]] = {}
        self._wakes: dict[str, Callable[[], None]] = {}
        self.sent = 0
        self.sent_to: dict[tuple[str, str], int] = {}

    def endpoint(self, name: str) -> LocalEndpoint:
        if name in self._queues:
            raise ValueError(f"a party named {name!r} is on the bus already")
        self._queues[name] = deque()
        return LocalEndpoint(self, name)

    def post(self, sender: str, to: str, message: Message) -> None:
        self.sent += 1
        self.sent_to[(sender, to)] = self.sent_to.get((sender, to), 0) + 1
        queue = self._queues.get(to)
        if queue is None:
            return
        if self._encoded:
            message = decode(encode(Envelope(sender, self.sent, message))).body
        queue.append(message)
        wake = self._wakes.get(to)
        if wake is not None:
            wake()

    def take(self, name: str) -> list[Message]:
        queue = self._queues[name]
        if not queue:
            return []
        taken = list(queue)
        queue.clear()
        return taken

    def waiting(self, name: str) -> int:
        return len(self._queues.get(name, ()))

    def wake_with(self, name: str, wake: Callable[[], None]) -> None:
        self._wakes[name] = wake

    def remove(self, name: str) -> None:
        self._queues.pop(name, None)
        self._wakes.pop(name, None)


class LocalEndpoint:
    def __init__(self, bus: LocalBus, name: str) -> None:
        self._bus = bus
        self.name = name

    def send(self, to: str, message: Message) -> None:
        self._bus.post(self.name, to, message)

    def receive(self) -> Sequence[Message]:
        return self._bus.take(self.name)

    def forget(self, peer: str) -> None:
        """What waits for a party is gone with it (see `LocalBus.remove`)."""

    def on_arrival(self, wake: Callable[[], None]) -> None:
        self._bus.wake_with(self.name, wake)

    def close(self) -> None:
        self._bus.remove(self.name)
