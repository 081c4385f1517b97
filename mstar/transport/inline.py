"""The plainest transport: arrays travel inside their messages. The others do so with small ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mstar.tensors import Lease, Output
from mstar.transport.api import Gone, Owner
from mstar.transport.crates import crate, uncrate
from mstar.transport.device import DeviceMemory, OverHost


class InlineTransport:
    """Holds nothing, so there is nothing to free."""

    descriptor: int | None = None

    def __init__(self, memory: DeviceMemory | None = None) -> None:
        """`memory`: of the rank's device."""
        self._landing = OverHost(memory)
        self._inline_bytes = 0

    def pack(self, value: Output, to: str, owner: Owner) -> Any:  # noqa: ARG002 - it travels with its message
        return crate(value, self._put)

    def here(self, value: Any) -> bool:  # noqa: ARG002 - it always is
        return True

    def unpack(self, value: Any) -> Output:
        opened: Output = uncrate(value, inline, self._landing)
        return opened

    def drop(self, value: Any) -> None:
        pass

    def free(self, request: str) -> None:
        pass

    def forget(self, worker: str) -> None:
        pass

    def census(self) -> Mapping[str, int]:
        return {"leases": 0}

    def counters(self) -> Mapping[str, int]:
        return {"inline_bytes": self._inline_bytes, "shared_bytes": 0, "leases_made": 0}

    def close(self) -> None:
        pass

    def _put(self, array: np.ndarray) -> bytes:
        self._inline_bytes += array.nbytes
        return array.tobytes()


def inline(body: bytes | memoryview | Lease) -> bytes | memoryview:
    """The bytes that travelled in the message."""
    if isinstance(body, Lease):
        raise Gone(f"nothing is held in {body.arena}")
    return body
