"""What a worker asks of a transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from mstar.tensors import Output

Owner: TypeAlias = tuple[str, int]
"""(request, epoch): whose end frees what is still on its way."""

INLINE = 4096
"""Bytes up to which an array travels inside its message: a lease costs about as much as copying them twice."""


class Transport(Protocol):
    """Packs values for other workers and unpacks theirs."""

    def pack(self, value: Output, to: str, owner: Owner) -> Any:
        """The value as a message to worker `to` carries it. Raises TypeError for what can not travel."""
        ...

    def here(self, value: Any) -> bool:
        """Whether `unpack` can be called now; else it can soon, or never if the sender is gone: ask again.

        Whoever has it wait is woken by the transport's descriptor, if it has one.
        """
        ...

    def unpack(self, value: Any) -> Output:
        """What the other worker packed; it belongs to the caller. Frees what it was held in; to be called once.

        Raises Gone if the sender has freed it already: its request is over; Rejected if our device has no room for it.
        """
        ...

    def drop(self, value: Any) -> None:
        """The value will not be unpacked: its request is over here."""
        ...

    def free(self, request: str) -> None:
        """The request is over: free what was packed for it and not yet unpacked. Unknown ones are ignored."""
        ...

    def forget(self, worker: str) -> None:
        """The worker is gone: let go of what was mapped of its memory."""
        ...

    def census(self) -> Mapping[str, int]:
        """What is on its way."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Totals since the start: bytes that went inside messages, bytes copied into what is shared, leases."""
        ...

    @property
    def descriptor(self) -> int | None:
        """Becomes readable when a value that was not here may be."""
        ...

    def close(self) -> None: ...


class Gone(Exception):
    """What a message names was freed, or its worker is dead."""
