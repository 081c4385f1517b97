"""Joins arrays of numpy or torch without importing torch.

An array is anything with a shape and a dtype. Its functions are found through the array itself: the namespace that it
names by the array API standard (`__array_namespace__`, numpy), else the top module of its class (torch, which has the
standard's `stack` and `concat` under the same names). Whoever holds a tensor has imported its module already.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from mstar.tensors import Array, Value


def is_array(value: Value) -> bool:
    """Whether the value has a shape and a dtype."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def stack(arrays: Sequence[Any]) -> Array:
    """Arrays of one shape [...] → [n, ...]."""
    joined: Array = _namespace(arrays[0]).stack(arrays)
    return joined


def concat(arrays: Sequence[Any]) -> Array:
    """Arrays [n_i, ...] → [sum of n_i, ...]; a single one as it is."""
    if len(arrays) == 1:
        only: Array = arrays[0]
        return only
    joined: Array = _namespace(arrays[0]).concat(arrays)
    return joined


def _namespace(array: Any) -> Any:
    named = getattr(array, "__array_namespace__", None)
    return named() if named is not None else sys.modules[type(array).__module__.partition(".")[0]]
