"""The plainest transport: arrays travel inside their messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mstar.tensors import Lease, Output
from mstar.transport.api import Gone, Owner
from mstar.transport.crates import crate, uncrate


class InlineTransport:
    """Holds nothing, so there is nothing to free."""

    def __init__(self) -> None:
        self._counters = {"inline_bytes": 0}

    def pack(self, value: Output, to: str, owner: Owner) -> Any:  # noqa: ARG002 - travels with its message
        return crate(value, self._put)

    def unpack(self, value: Any) -> Output:
        opened: Output = uncrate(value, _inline)
        return opened

    def free(self, request: str) -> None:
        pass

    def census(self) -> Mapping[str, int]:
        return {}

    def counters(self) -> Mapping[str, int]:
        return self._counters

    def _put(self, array: np.ndarray) -> bytes:
        self._counters["inline_bytes"] += array.nbytes
        return array.tobytes()


def _inline(body: bytes | memoryview | Lease) -> bytes | memoryview:
    if isinstance(body, Lease):
        raise Gone(f"nothing is held in {body.arena}")
    return body
