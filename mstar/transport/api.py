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
        """The value as a message carries it. Raises TypeError for what can not travel."""
        ...

    def unpack(self, value: Any) -> Output:
        """What the other worker packed; it belongs to the caller. Frees what it was held in.

        Raises Gone if the sender has freed it already: its request is over.
        """
        ...

    def free(self, request: str) -> None:
        """The request is over: free what was packed for it and not yet unpacked. Unknown ones are ignored."""
        ...

    def census(self) -> Mapping[str, int]:
        """What is on its way."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Totals since the start."""
        ...


class Gone(Exception):
    """What a message names was freed, or its worker is dead."""
