"""Values as messages carry them, where they are more than plain data and arrays (torch-free)."""

from __future__ import annotations

from typing import Any

from mstar.tensors import Lease


class Slice:
    """Request input: items [start, stop) of a session's live stream as the rows of one array; waits for the last."""

    __slots__ = ("start", "stop", "stream")

    def __init__(self, stream: str, start: int, stop: int) -> None:
        self.stream = stream
        self.start = start
        self.stop = stop

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slice) and (self.stream, self.start, self.stop) == (
            other.stream,
            other.start,
            other.stop,
        )

    def __hash__(self) -> int:
        return hash((self.stream, self.start, self.stop))

    def __repr__(self) -> str:
        return f"Slice({self.stream!r}, {self.start}, {self.stop})"


class Crate:
    """An array on its way between workers: what it is, and its bytes in C order or where they lie.

    `kind`: "numpy" | "scalar" (of numpy) | "torch" | "device" (a tensor that lay on a device) | "mapped" (one that lies
    there, in memory that its receiver maps); `dtype` as the kind writes it.
    """

    __slots__ = ("body", "dtype", "kind", "shape")

    def __init__(self, kind: str, dtype: str, shape: tuple[int, ...], body: bytes | memoryview | Lease) -> None:
        self.kind = kind
        self.dtype = dtype
        self.shape = shape
        self.body = body

    def __repr__(self) -> str:
        body = self.body if isinstance(self.body, Lease) else bytes(self.body)
        return f"Crate({self.kind!r}, {self.dtype!r}, {self.shape}, {body!r})"


class Group:
    """Values that belong together, on their way between workers, where plain sequences come as lists.

    `kind`: "many" | "rows" (of `mstar.tensors`) | "tuple" | "offer" (a name and a crate, see `mstar.transport.lane`).
    """

    __slots__ = ("cut", "kind", "parts")

    def __init__(self, kind: str, parts: tuple[Any, ...], cut: bool = False) -> None:
        self.kind = kind
        self.parts = parts
        self.cut = cut

    def __repr__(self) -> str:
        return f"Group({self.kind!r}, {self.parts!r}, {self.cut})"
