"""Values between workers of one process go by reference: nothing is copied, the message names a place on a shelf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mstar.carried import Crate
from mstar.tensors import Lease, Output
from mstar.transport.api import Gone, Owner
from mstar.transport.crates import leases_of

_ARENA = "shelf"


class Shelf:
    """What the workers of one process have on its way to each other, by number."""

    def __init__(self) -> None:
        self.values: dict[int, tuple[str, Output]] = {}  # → request, value
        self.made = self.taken = self.freed = 0


class LocalTransport:
    """One worker's access to the shelf of its process."""

    descriptor: int | None = None

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._mine: dict[str, set[int]] = {}  # request → numbers

    def pack(self, value: Output, to: str, owner: Owner) -> Any:  # noqa: ARG002 - one shelf for all
        shelf = self._shelf
        shelf.made += 1
        shelf.values[shelf.made] = (owner[0], value)
        self._mine.setdefault(owner[0], set()).add(shelf.made)
        return Crate("reference", "", (), Lease(_ARENA, shelf.made, 0, 0))

    def here(self, value: Any) -> bool:  # noqa: ARG002 - it always is
        return True

    def unpack(self, value: Any) -> Output:
        held = self._shelf.values.pop(value.body.number, None)
        if held is None:
            raise Gone(f"number {value.body.number} is not on the shelf")
        self._shelf.taken += 1
        return held[1]

    def drop(self, value: Any) -> None:
        for lease in leases_of(value):
            self._shelf.freed += self._shelf.values.pop(lease.number, None) is not None

    def free(self, request: str) -> None:
        for number in self._mine.pop(request, ()):
            self._shelf.freed += self._shelf.values.pop(number, None) is not None

    def forget(self, worker: str) -> None:
        pass

    def census(self) -> Mapping[str, int]:
        numbers = {number for mine in self._mine.values() for number in mine}
        return {"leases": sum(number in self._shelf.values for number in numbers)}

    def counters(self) -> Mapping[str, int]:
        return {"inline_bytes": 0, "shared_bytes": 0, "leases_made": self._shelf.made}

    def close(self) -> None:
        for request in list(self._mine):
            self.free(request)
