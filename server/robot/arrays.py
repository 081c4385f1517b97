"""msgpack with numpy arrays in it, as openpi's clients write it (pure).

An array is a map {b"__ndarray__": True, b"data", b"dtype", b"shape"}, a numpy number {b"__npgeneric__": True, b"data",
b"dtype"}; keys are byte strings, and text is taken too. Only booleans, numbers and text can be read: nothing that is
decoded is ever run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from mstar.errors import Rejected
from mstar.tensors import Value

ARRAY, NUMBER = "__ndarray__", "__npgeneric__"
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|U\d{1,6}|S\d{1,6})")
DEEPEST = 16
"""Maps and lists inside one another."""
MOST_VALUES = 16 * 1024
"""Values of a frame, keys counted; an array is one. To decode millions of small ones would hold up everybody else."""

_FIXED = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),
    **dict.fromkeys((0xCC, 0xD0), 1),
    **dict.fromkeys((0xCD, 0xD1, 0xD4), 2),
    0xD5: 3,
    **dict.fromkeys((0xCA, 0xCE, 0xD2), 4),
    0xD6: 5,
    **dict.fromkeys((0xCB, 0xCF, 0xD3), 8),
    0xD7: 9,
    0xD8: 17,
}
"""First byte of a value of msgpack → bytes behind it."""
_SIZED = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
"""… → bytes that tell how many follow, and more of them that are not counted."""
_HOLDING = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""… → bytes that tell how many it holds, and values of each: one in a list, two in a map."""


def pack(value: Value) -> bytes:
    """Raises TypeError for what can not be written."""
    return msgspec.msgpack.encode(value, enc_hook=_plain)


def unpack(body: bytes) -> Value:
    """Arrays are read-only views of the body. Raises Rejected, naming the key, for what is no msgpack or no array."""
    if not _few(body):
        text = f"the frame has more than {MOST_VALUES} values; numbers that are many travel as an array"
        raise Rejected(text, code="invalid_frame")
    try:
        tree = msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise Rejected(f"the frame is no msgpack: {wrong}", code="invalid_frame") from None
    return _value(tree, "", 0)


def _few(body: bytes) -> bool:
    """Whether there are no more values than may be; looks at their first bytes alone. True for what is no msgpack."""
    at, seen, left = 0, 0, 1
    while left and at < len(body):
        kind = body[at]
        at, seen, left = at + 1, seen + 1, left - 1
        if kind in _HOLDING or 0x80 <= kind <= 0x9F:
            digits, each = _HOLDING.get(kind, (0, 1 if kind >= 0x90 else 2))
            left += each * (int.from_bytes(body[at : at + digits], "big") if digits else kind & 0x0F)
            at += digits
        elif kind in _SIZED:
            digits, more = _SIZED[kind]
            at += digits + more + int.from_bytes(body[at : at + digits], "big")
        elif 0xA0 <= kind <= 0xBF:
            at += kind & 0x1F
        else:
            at += _FIXED.get(kind, 0)
        if seen + left > MOST_VALUES:
            return False
    return True


def _plain(value: Any) -> Any:
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"a value of type {type(value).__name__} can not be packed")
    if value.dtype.kind in "VOc":
        raise TypeError(f"arrays of {value.dtype} can not be packed")
    if isinstance(value, np.generic):
        return {NUMBER.encode(): True, b"data": value.item(), b"dtype": value.dtype.str}
    return {
        ARRAY.encode(): True,
        b"data": value.tobytes(),
        b"dtype": value.dtype.str,
        b"shape": value.shape,
    }


def _value(tree: Any, key: str, depth: int) -> Value:
    if depth > DEEPEST:
        raise Rejected(f"{key}: more than {DEEPEST} maps or lists inside one another", code="invalid_frame", param=key)
    if isinstance(tree, dict):
        return _map(tree, key, depth)
    if isinstance(tree, list):
        return [_value(each, f"{key}[{n}]", depth + 1) for n, each in enumerate(tree)]
    if tree is None or isinstance(tree, (str, bytes, int, float)):
        return tree
    raise Rejected(f"{key or 'the frame'} is a {type(tree).__name__}", code="invalid_frame", param=key or None)


def _map(tree: Mapping[Any, Any], key: str, depth: int) -> Value:
    named: dict[str, Any] = {}
    for name, value in tree.items():
        text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
        if not isinstance(text, str):
            raise Rejected(f"{key or 'the frame'} has the key {name!r}: keys are text", code="invalid_frame")
        named[text] = value
    if ARRAY in named:
        return _array(named, key)
    if NUMBER in named:
        return _number(named, key)
    return {name: _value(value, f"{key}/{name}" if key else name, depth + 1) for name, value in named.items()}


def _dtype(named: Mapping[str, Any], key: str) -> np.dtype[Any]:
    text = named.get("dtype")
    text = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise Rejected(f"{key}: dtype {text!r} is not read here", code="wrong_dtype", param=key)
    return np.dtype(text)


def _array(named: Mapping[str, Any], key: str) -> np.ndarray:
    dtype = _dtype(named, key)
    data, shape = named.get("data"), named.get("shape")
    sizes = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if not isinstance(data, bytes) or not isinstance(shape, list) or not sizes or len(shape) > DEEPEST:
        raise Rejected(f"{key}: an array has data and shape", code="wrong_shape", param=key)
    wanted = math.prod(shape) * dtype.itemsize
    if len(data) != wanted:
        text = f"{key}: {len(data)} bytes are no {dtype} of shape {tuple(shape)}, which has {wanted}"
        raise Rejected(text, code="wrong_shape", param=key)
    if not wanted:
        return np.zeros(shape, dtype)
    return np.frombuffer(data, dtype).reshape(shape)


def _number(named: Mapping[str, Any], key: str) -> Value:
    dtype, value = _dtype(named, key), named.get("data")
    if not isinstance(value, (bool, int, float, str)):
        raise Rejected(f"{key}: {value!r} is no {dtype}", code="wrong_dtype", param=key)
    return value
