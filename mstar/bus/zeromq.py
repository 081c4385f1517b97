"""The bus between processes: one PULL socket a party, one PUSH socket a peer, at `ipc://` paths of a private folder.

Sends never block: beyond the socket's high-water mark messages wait in an overflow of `OVERFLOW` messages a peer, which
is flushed when the socket takes more. A party whose peer does not read at all gets BusOverflow.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import zmq

from mstar.bus import BusOverflow
from mstar.bus.wire import Envelope, decode, encode
from mstar.messages import Message

HIGH_WATER = 1000
OVERFLOW = 100_000
_LINGER_MS = 200
_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)  # as members of enumerations they cost two microseconds a use
RETRY_SECONDS = 0.002
"""How soon a peer is tried again whose socket took no more."""


class _Peer:
    """Our PUSH socket to one peer, its message numbers and what waits behind its high-water mark."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str, high_water: int) -> None:
        self.socket = context.socket(zmq.PUSH)
        self.socket.setsockopt(zmq.SNDHWM, high_water)
        self.socket.setsockopt(zmq.LINGER, _LINGER_MS)
        self.socket.connect(address)
        self.number = 0
        self.overflow: deque[bytes] = deque()

    def push(self, frame: bytes) -> bool:
        if self.overflow:
            return False
        try:
            self.socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def flush(self) -> bool:
        while self.overflow:
            try:
                self.socket.send(self.overflow[0], zmq.NOBLOCK)
            except zmq.Again:
                return False
            self.overflow.popleft()
        return True


class ZmqEndpoint:
    """A party on the bus of `directory` (which only its user may enter).

    In an asyncio loop: `attach()`, then `on_arrival`. In a plain loop: `receive()`, then `wait(timeout)`. Several
    threads may use it, one at a time, while another one waits.
    """

    def __init__(self, directory: Path, name: str, *, high_water: int = HIGH_WATER, overflow: int = OVERFLOW) -> None:
        self.name = name
        self.lost = 0
        self._directory = directory
        self._high_water = high_water
        self._overflow = overflow
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._pull = self._context.socket(zmq.PULL)
        self._pull.setsockopt(zmq.RCVHWM, high_water)
        self._pull.setsockopt(zmq.LINGER, 0)
        self._pull.bind(self._address(name))
        self._peers: dict[str, _Peer] = {}
        self._blocked: set[str] = set()
        self._seen: dict[str, int] = {}
        self._wake: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._poll = select.poll()
        self._descriptor = int(self._pull.getsockopt(zmq.FD))
        self._poll.register(self._descriptor, select.POLLIN)
        self._stirred = select.poll()
        self._stirred.register(self._descriptor, select.POLLIN)
        self._retry: asyncio.TimerHandle | None = None

    def _address(self, name: str) -> str:
        return f"ipc://{self._directory / name}"

    def send(self, to: str, message: Message) -> None:
        peer = self._peers.get(to)
        if peer is None:
            peer = self._peers[to] = _Peer(self._context, self._address(to), self._high_water)
        peer.number += 1
        frame = encode(Envelope(self.name, peer.number, message))
        if peer.push(frame):
            return
        if len(peer.overflow) >= self._overflow:
            raise BusOverflow(f"{to} has not read {len(peer.overflow)} messages of {self.name}")
        peer.overflow.append(frame)
        self._blocked.add(to)
        self._retry_soon()

    def receive(self) -> Sequence[Message]:
        taken: list[Message] = []
        while self._has_arrived():
            envelope = decode(self._pull.recv(zmq.NOBLOCK))
            expected = self._seen.get(envelope.sender, 0) + 1
            if envelope.number > expected:
                self.lost += envelope.number - expected
            self._seen[envelope.sender] = envelope.number
            taken.append(envelope.body)
        if self._blocked:
            self.flush()
        return taken

    def forget(self, peer: str) -> None:
        known = self._peers.pop(peer, None)
        if known is not None:
            known.socket.close(linger=0)
        self._blocked.discard(peer)
        self._seen.pop(peer, None)

    def flush(self) -> None:
        """Send what waits behind a high-water mark, as far as the peers take it."""
        self._blocked = {name for name in self._blocked if not self._peers[name].flush()}

    @property
    def waiting(self) -> int:
        """Messages that wait in overflows."""
        return sum(len(self._peers[name].overflow) for name in self._blocked)

    def on_arrival(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def attach(self) -> None:
        """Call `wake` from the running asyncio loop when messages arrive."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._arrived)
        self._loop.call_soon(self._arrived)

    def _arrived(self) -> None:
        # The descriptor is edge-triggered: whoever is woken must drain the socket, which `receive` does.
        if self._wake is not None and self._has_arrived():
            self._wake()
        if self._loop is not None and self._has_arrived():
            self._loop.call_soon(self._arrived)

    def _has_arrived(self) -> bool:
        return bool(int(self._pull.getsockopt(_EVENTS)) & _POLLIN)

    def _retry_soon(self) -> None:
        if self._loop is not None and self._retry is None:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._retried)

    def _retried(self) -> None:
        self._retry = None
        self.flush()
        if self._blocked:
            self._retry_soon()

    def watch(self, descriptor: int) -> None:
        """Let `wait` also return when `descriptor` is readable."""
        self._poll.register(descriptor, select.POLLIN)

    def stirred(self) -> bool:
        """Whether `receive` may find something: in a plain loop, where nothing else asks the socket, it is cheaper."""
        return bool(self._blocked or self._stirred.poll(0))

    @property
    def blocked(self) -> bool:
        """Whether something waits in an overflow: `receive` tries to send it, `RETRY_SECONDS` later at the latest."""
        return bool(self._blocked)

    def wait(self, seconds: float | None) -> list[int]:
        """Sleep until something has arrived since the last `receive`, a watched descriptor is readable, or the time is
        over → descriptors that are readable.

        The socket is not touched: its descriptor is readable when there is something that it was not asked for.
        """
        if self._blocked:
            seconds = RETRY_SECONDS if seconds is None else min(seconds, RETRY_SECONDS)
        return [descriptor for descriptor, _ in self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)]

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop = None
        if self._retry is not None:
            self._retry.cancel()
        for peer in self._peers.values():
            peer.socket.close()
        self._pull.close()
        self._context.term()
        (self._directory / self.name).unlink(missing_ok=True)
