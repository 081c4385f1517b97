"""Values as trees for the wire: every array becomes a `Crate`, and becomes what it was when it is opened.

A crate holds an array's bytes, or says where they lie; which of them is the caller's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from mstar.messages import Crate, Group
from mstar.tensors import Lease, Many, Output, Rows

Put: TypeAlias = Callable[[np.ndarray], "bytes | Lease"]
"""Stores the bytes of a contiguous array [n] uint8."""
Get: TypeAlias = Callable[["bytes | memoryview | Lease"], "bytes | bytearray | memoryview"]
"""The bytes that a crate holds or names."""


def crate(value: Output, put: Put) -> Any:
    """The tree with crates in place of arrays. Raises TypeError for what can not travel."""
    match value:
        case torch.Tensor():
            return _crate_tensor(value, put)
        case np.ndarray() | np.generic():
            return _crate_array(value, put)
        case str() | bytes() | int() | float() | bool() | None:
            return value
        case Many(items=items, cut=cut):
            return Group("many", tuple(crate(each, put) for each in items), cut)
        case Rows(array=array, cut=cut):
            return Group("rows", (crate(array, put),), cut)
        case Mapping():
            return {name: crate(each, put) for name, each in value.items()}
        case tuple():
            return Group("tuple", tuple(crate(each, put) for each in value))
        case Sequence():
            return [crate(each, put) for each in value]
        case _:
            raise TypeError(
                f"a value of type {type(value).__name__} can not travel; arrays, text, numbers, lists and maps can"
            )


def uncrate(value: Any, get: Get) -> Any:
    """The tree as it was, an `Output`."""
    match value:
        case Crate():
            return _open(value, get)
        case Group():
            parts = tuple(uncrate(each, get) for each in value.parts)
            match value.kind:
                case "many":
                    return Many(parts, value.cut)
                case "rows":
                    return Rows(parts[0], value.cut)
                case _:
                    return parts
        case Mapping():
            return {name: uncrate(each, get) for name, each in value.items()}
        case list():
            return [uncrate(each, get) for each in value]
        case _:
            return value


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


def _crate_tensor(tensor: torch.Tensor, put: Put) -> Crate:
    plain = tensor.detach().cpu().contiguous()
    dtype = str(plain.dtype).removeprefix("torch.")
    return Crate("torch", dtype, tuple(plain.shape), put(plain.reshape(-1).view(torch.uint8).numpy()))


def _crate_array(array: np.ndarray | np.generic, put: Put) -> Crate:
    if array.dtype.hasobject:
        raise TypeError("an array of objects can not travel")
    plain = np.ascontiguousarray(array)
    kind = "scalar" if isinstance(array, np.generic) else "numpy"
    return Crate(kind, plain.dtype.str, array.shape, put(plain.reshape(-1).view(np.uint8)))


def _open(packed: Crate, get: Get) -> Any:
    found = get(packed.body)
    body = found if isinstance(found, bytearray) else bytearray(found)  # a copy: its owner may write to it
    if packed.kind == "torch":
        dtype = getattr(torch, packed.dtype)
        if not body:
            return torch.empty(packed.shape, dtype=dtype)
        return torch.frombuffer(body, dtype=dtype).reshape(packed.shape)
    array = np.frombuffer(body, dtype=np.dtype(packed.dtype)).reshape(packed.shape)
    return array[()] if packed.kind == "scalar" else array
