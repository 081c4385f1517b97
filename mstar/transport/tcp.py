"""Arrays between hosts: held by the sender until the receiver has fetched them over TCP.

The receiver fetches (as an RDMA engine reads), so what is on its way lies at its owner and ends with its request. A
fetch runs on a thread of its own; until its bytes are there, `here` says no and the worker does other things.

Over a connection: the key of 32 bytes, then for each lease its number (8 bytes), answered by its size (8 bytes, all
ones = freed) and its bytes.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import queue
import socket
import struct
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mstar.tensors import Lease, Output
from mstar.transport.api import INLINE, Gone, Owner
from mstar.transport.crates import crate, leases_of, uncrate
from mstar.transport.device import DeviceMemory, OverHost

_KEY_BYTES = 32
_NUMBER = struct.Struct("<Q")
_FREED = 2**64 - 1
_CONNECT_SECONDS = 10.0


@dataclass(slots=True)
class _Leases:
    """What peers may fetch; threads of connections and the worker's loop share it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    held: dict[int, tuple[str, bytes]] = field(default_factory=dict)  # → request, bytes
    count: int = 0

    def put(self, request: str, body: bytes) -> int:
        with self.lock:
            self.count += 1
            self.held[self.count] = (request, body)
            return self.count

    def take(self, number: int) -> bytes | None:
        with self.lock:
            found = self.held.pop(number, None)
        return found[1] if found is not None else None

    def free(self, request: str) -> None:
        with self.lock:
            for number in [number for number, (owner, _) in self.held.items() if owner == request]:
                del self.held[number]


class TcpTransport:
    """One worker's door and its connections to others.

    `host`: the address peers reach it at; `key`: 32 bytes that all workers of the server know; `memory`: of the rank's
    device.
    """

    def __init__(
        self, key: bytes, *, host: str = "127.0.0.1", smallest: int = INLINE, memory: DeviceMemory | None = None
    ) -> None:
        if len(key) != _KEY_BYTES:
            raise ValueError(f"a key has {_KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        self._smallest = smallest
        self._landing = OverHost(memory)
        self._leases = _Leases()
        self._counters: Counter[str] = Counter(inline_bytes=0, shared_bytes=0, leases_made=0)
        self._door = socket.create_server((host, 0))
        self.address = f"{host}:{self._door.getsockname()[1]}"
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._fetchers: dict[str, _Fetcher] = {}
        self._connections: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="transport-door", daemon=True)]
        self._threads[0].start()

    @property
    def descriptor(self) -> int | None:
        return self._event

    def pack(self, value: Output, to: str, owner: Owner) -> Any:  # noqa: ARG002 - whoever has the key may fetch
        return crate(value, lambda array: self._put(array, owner[0]))

    def here(self, value: Any) -> bool:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        found = [self._fetcher(lease.arena).has(lease.number) for lease in leases_of(value)]  # asks for all of them
        return all(found)

    def unpack(self, value: Any) -> Output:
        opened: Output = uncrate(value, self._get, self._landing)
        return opened

    def drop(self, value: Any) -> None:
        for lease in leases_of(value):
            self._fetcher(lease.arena).drop(lease.number)

    def free(self, request: str) -> None:
        self._leases.free(request)

    def forget(self, worker: str) -> None:
        pass

    def census(self) -> Mapping[str, int]:
        return {
            "leases": len(self._leases.held),
            "fetched": sum(len(fetcher.fetched) for fetcher in self._fetchers.values()),
        }

    def counters(self) -> Mapping[str, int]:
        return self._counters

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for fetcher in self._fetchers.values():
            fetcher.close()
        for thread in self._threads:
            thread.join(_CONNECT_SECONDS)
        os.close(self._event)

    def _put(self, array: np.ndarray, request: str) -> bytes | Lease:
        body = array.tobytes()
        if array.nbytes <= self._smallest:
            self._counters["inline_bytes"] += array.nbytes
            return body
        self._counters["shared_bytes"] += array.nbytes
        self._counters["leases_made"] += 1
        return Lease(self.address, self._leases.put(request, body), 0, array.nbytes)

    def _get(self, body: bytes | memoryview | Lease) -> bytes | bytearray | memoryview:
        return self._fetcher(body.arena).get(body) if isinstance(body, Lease) else body

    def _fetcher(self, address: str) -> _Fetcher:
        fetcher = self._fetchers.get(address)
        if fetcher is None:
            fetcher = self._fetchers[address] = _Fetcher(address, self._key, self._event)
        return fetcher

    # ------------------------------------------------------------------------------------------ the owner's side

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._door.accept()
            except OSError:  # closed
                return
            self._connections.add(connection)
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            serving = threading.Thread(target=self._serve, args=(connection,), name="transport-peer", daemon=True)
            self._threads.append(serving)
            serving.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                if not hmac.compare_digest(_read(connection, _KEY_BYTES), self._key):
                    return
                while True:
                    (number,) = _NUMBER.unpack(_read(connection, _NUMBER.size))
                    body = self._leases.take(number)
                    if body is None:
                        connection.sendall(_NUMBER.pack(_FREED))
                    else:
                        connection.sendall(_NUMBER.pack(len(body)))
                        connection.sendall(body)
        except OSError:  # the peer is gone, or we are
            pass
        finally:
            self._connections.discard(connection)


class _Fetcher:
    """The receiver's side of one connection: numbers in, bytes out, on a thread."""

    def __init__(self, address: str, key: bytes, event: int) -> None:
        self._address = address
        self._key = key
        self._event = event
        self._wanted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._asked: set[int] = set()
        self.fetched: dict[int, bytearray | None] = {}  # None = freed by its owner, who may be dead
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name=f"transport-{address}", daemon=True)
        self._thread.start()

    def has(self, number: int) -> bool:
        """Whether the bytes are here; asks for them the first time."""
        with self._lock:
            if number in self.fetched:
                return True
            if number not in self._asked:
                self._asked.add(number)
                self._wanted.put(number)
            return False

    def get(self, lease: Lease) -> bytearray:
        with self._lock:
            self._asked.discard(lease.number)
            body = self.fetched.pop(lease.number, None)
        if body is None:
            raise Gone(f"lease {lease.number} of {lease.arena} was freed")
        return body

    def drop(self, number: int) -> None:
        with self._lock:
            self._asked.discard(number)
            self.fetched.pop(number, None)

    def close(self) -> None:
        self._wanted.put(None)
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(_CONNECT_SECONDS)

    def _run(self) -> None:
        while (number := self._wanted.get()) is not None:
            try:
                body = self._fetch(number)
            except OSError:
                body = None
                self._hang_up()
            with self._lock:
                if number in self._asked:
                    self.fetched[number] = body
            os.eventfd_write(self._event, 1)
        self._hang_up()

    def _hang_up(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def _fetch(self, number: int) -> bytearray | None:
        if self._socket is None:
            host, _, port = self._address.rpartition(":")
            self._socket = socket.create_connection((host, int(port)), _CONNECT_SECONDS)
            self._socket.settimeout(None)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(self._key)
        self._socket.sendall(_NUMBER.pack(number))
        (size,) = _NUMBER.unpack(_read(self._socket, _NUMBER.size))
        return None if size == _FREED else _read(self._socket, size)


def _read(connection: socket.socket, size: int) -> bytearray:
    """Exactly so many bytes. Raises ConnectionError at the end of the stream."""
    body = bytearray(size)
    view = memoryview(body)
    got = 0
    while got < size:
        n = connection.recv_into(view[got:])
        if not n:
            raise ConnectionError("the peer has closed")
        got += n
    return body
