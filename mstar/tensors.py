"""Values that travel on edges, and descriptors of arrays (torch-free).

A value is a tree of arrays, text and numbers. Between nodes of one worker it goes by reference; on the wire it is
encoded by `mstar.messages`.

A tensor stays on the device that computed it: for other nodes of its rank, in streams, in a node's state. To another
rank it comes on that rank's device, or where that has none in the host's memory; to a client as a numpy array. Arrays
of the host stay on the host. So a node takes its inputs from wherever they lie, moves them to its device once, and
leaves what it computed there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable


@runtime_checkable
class Array(Protocol):
    """numpy.ndarray and torch.Tensor."""

    @property
    def shape(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...


Value: TypeAlias = "Array | str | bytes | int | float | bool | None | Sequence[Value] | Mapping[str, Value]"


@dataclass(frozen=True, slots=True)
class Many:
    """Several items at once on a streaming edge; `cut=True` ends the stream's current segment after them."""

    items: tuple[Value, ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """Items that are the rows of one array [n, …]; `cut=True` ends the stream's current segment after them."""

    array: Array
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """`size` bytes at `offset` of an arena, held for whoever the message that names it is for."""

    arena: str
    number: int
    offset: int
    size: int


Output: TypeAlias = "Value | Many | Rows"
"""What a node may put on an edge: a value, or on streaming edges several items at once."""
