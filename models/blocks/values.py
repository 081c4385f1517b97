"""Reading the values that arrive on edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mstar.tensors import Value


def items(value: Value) -> list[Value]:
    """The items of a chunk: a sequence of them, or the one item itself."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(value)
    return [] if value is None else [value]


def record(value: Value) -> Mapping[str, Value]:
    """The one record of a chunk of one item."""
    [item] = items(value)
    if not isinstance(item, Mapping):
        raise TypeError(f"expected a record, got {type(item).__name__}")
    return item


def ints(value: Value) -> NDArray[np.int64]:
    """Integers of any shape → [n]."""
    return np.asarray(_plain(value), np.int64).reshape(-1)


def floats(value: Value) -> NDArray[np.float32]:
    """Numbers, shape kept."""
    return np.asarray(_plain(value), np.float32)


def integer(value: Value) -> int:
    """One integer, as a number or an array of one."""
    [number] = ints(value)
    return int(number)


def text(value: Value) -> str:
    """TypeError if it is not text."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


def _plain(value: Value) -> object:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(v) for v in value]
    return value
