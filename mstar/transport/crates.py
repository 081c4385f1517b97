"""Values as trees for the wire: every array becomes a `Crate`, and becomes what it was when it is opened.

A crate holds an array's bytes, or says where they lie; which of them is the caller's choice. A tensor of its sender's
device becomes one of its receiver's device (`mstar.tensors`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

from mstar.carried import Crate, Group
from mstar.tensors import Lease, Many, Output, Rows
from mstar.transport.device import on_device

Put: TypeAlias = Callable[[np.ndarray], "bytes | Lease"]
"""Stores the bytes of a contiguous array [n] uint8."""
Get: TypeAlias = Callable[["bytes | memoryview | Lease"], "bytes | bytearray | memoryview"]
"""The bytes that a crate holds or names."""
PutTensor: TypeAlias = Callable[[torch.Tensor], Any]
"""Packs a tensor of the device: a crate, or an offer around one."""


class Landing(Protocol):
    """Where tensors of a device land."""

    def land(self, tensor: torch.Tensor) -> torch.Tensor:
        """What came over the host."""
        ...

    def take(self, crate: Crate) -> torch.Tensor:
        """What lies in device memory. Raises Gone if it was freed."""
        ...

    def offered(self, arena: str) -> None:
        """The sender could send through this arena of its device memory."""
        ...


def crate(value: Output, put: Put, put_tensor: PutTensor | None = None) -> Any:
    """The tree with crates in place of arrays; `put_tensor` is for tensors of a device, None = they go over the host.

    Raises TypeError for what can not travel.
    """
    match value:
        case torch.Tensor():
            return put_tensor(value) if put_tensor is not None and on_device(value) else over_host(value, put)
        case np.ndarray() | np.generic():
            return _crate_array(value, put)
        case str() | bytes() | int() | float() | bool() | None:
            return value
        case Many(items=items, cut=cut):
            return Group("many", tuple(crate(each, put, put_tensor) for each in items), cut)
        case Rows(array=array, cut=cut):
            return Group("rows", (crate(array, put, put_tensor),), cut)
        case Mapping():
            return {name: crate(each, put, put_tensor) for name, each in value.items()}
        case tuple():
            return Group("tuple", tuple(crate(each, put, put_tensor) for each in value))
        case Sequence():
            return [crate(each, put, put_tensor) for each in value]
        case _:
            raise TypeError(
                f"a value of type {type(value).__name__} can not travel; arrays, text, numbers, lists and maps can"
            )


def offer(arena: str, packed: Crate) -> Group:
    """A crate, with the news that its sender could send it through device memory."""
    return Group("offer", (arena, packed))


def uncrate(value: Any, get: Get, landing: Landing) -> Any:
    """The tree as it was, an `Output`."""
    match value:
        case Crate(kind="mapped"):
            return landing.take(value)
        case Crate():
            opened = _open(value, get)
            return landing.land(opened) if value.kind == "device" else opened
        case Group():
            return _regroup(value, tuple(uncrate(each, get, landing) for each in value.parts), landing)
        case Mapping():
            return {name: uncrate(each, get, landing) for name, each in value.items()}
        case list():
            return [uncrate(each, get, landing) for each in value]
        case _:
            return value


def _regroup(group: Group, parts: tuple[Any, ...], landing: Landing) -> Any:
    match group.kind:
        case "offer":
            landing.offered(parts[0])
            return parts[1]
        case "many":
            return Many(parts, group.cut)
        case "rows":
            return Rows(parts[0], group.cut)
        case _:
            return parts


def leases_of(value: Any) -> list[Lease]:
    """All leases that a tree of crates names."""
    match value:
        case Crate():
            return [value.body] if isinstance(value.body, Lease) else []
        case Group():
            return [lease for each in value.parts for lease in leases_of(each)]
        case Mapping():
            return [lease for each in value.values() for lease in leases_of(each)]
        case list():
            return [lease for each in value for lease in leases_of(each)]
        case _:
            return []


def over_host(tensor: torch.Tensor, put: Put) -> Crate:
    """A tensor with its bytes in the host's memory."""
    plain = tensor.detach().cpu().contiguous()
    kind = "device" if on_device(tensor) else "torch"
    return Crate(kind, dtype_of(plain), tuple(plain.shape), put(plain.reshape(-1).view(torch.uint8).numpy()))


def dtype_of(tensor: torch.Tensor) -> str:
    """As a crate writes it."""
    return str(tensor.dtype).removeprefix("torch.")


def _crate_array(array: np.ndarray | np.generic, put: Put) -> Crate:
    if array.dtype.hasobject:
        raise TypeError("an array of objects can not travel")
    plain = np.ascontiguousarray(array)
    kind = "scalar" if isinstance(array, np.generic) else "numpy"
    return Crate(kind, plain.dtype.str, array.shape, put(plain.reshape(-1).view(np.uint8)))


def _open(packed: Crate, get: Get) -> Any:
    found = get(packed.body)
    body = found if isinstance(found, bytearray) else bytearray(found)  # a copy: its owner may write to it
    if packed.kind in {"torch", "device"}:
        dtype = getattr(torch, packed.dtype)
        if not body:
            return torch.empty(packed.shape, dtype=dtype)
        return torch.frombuffer(body, dtype=dtype).reshape(packed.shape)
    array = np.frombuffer(body, dtype=np.dtype(packed.dtype)).reshape(packed.shape)
    return array[()] if packed.kind == "scalar" else array
