"""Messages as bytes (torch-free): typed msgpack, never pickle.

Arrays are encoded in place as an extension type (dtype, shape, bytes) and decoded without a copy.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from mstar.carried import Crate, Group, Slice
from mstar.messages import Message
from mstar.tensors import Lease

_ARRAY = 1
_SLICE = 2
_CRATE = 3
_GROUP = 4


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """What is on the wire: messages are numbered per (sender, receiver), so that a lost one is seen."""

    sender: str
    number: int
    body: Message


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        head = msgspec.msgpack.encode((value.dtype.str, value.shape))
        return msgspec.msgpack.Ext(
            _ARRAY, len(head).to_bytes(2, "little") + head + np.ascontiguousarray(value).tobytes()
        )
    if isinstance(value, Slice):
        return msgspec.msgpack.Ext(_SLICE, msgspec.msgpack.encode((value.stream, value.start, value.stop)))
    if isinstance(value, np.generic):
        return value.item()
    kept = _encode_kept(value)
    if kept is not None:
        return kept
    raise TypeError(f"a value of type {type(value).__name__} can not travel; arrays, text, numbers, lists and maps can")


def _encode_kept(value: Any) -> msgspec.msgpack.Ext | None:
    """What travels between workers only: values exactly as they are."""
    match value:
        case Crate():
            body = value.body
            where = (body.arena, body.number, body.offset, body.size) if isinstance(body, Lease) else None
            head = msgspec.msgpack.encode((value.kind, value.dtype, value.shape, where))
            inline = b"" if isinstance(body, Lease) else body
            return msgspec.msgpack.Ext(_CRATE, b"".join((len(head).to_bytes(2, "little"), head, inline)))
        case Group():
            return msgspec.msgpack.Ext(_GROUP, _encoder.encode((value.kind, value.parts, value.cut)))
        case _:
            return None


def _decode(code: int, body: memoryview) -> Any:
    if code == _ARRAY:
        length = int.from_bytes(body[:2], "little")
        dtype, shape = msgspec.msgpack.decode(body[2 : 2 + length])
        return np.frombuffer(body[2 + length :], dtype=np.dtype(dtype)).reshape(shape)
    if code == _SLICE:
        return Slice(*msgspec.msgpack.decode(body))
    return _decode_kept(code, body)


def _decode_kept(code: int, body: memoryview) -> Any:
    if code == _CRATE:
        length = int.from_bytes(body[:2], "little")
        kind, dtype, shape, where = msgspec.msgpack.decode(body[2 : 2 + length])
        return Crate(kind, dtype, tuple(shape), body[2 + length :] if where is None else Lease(*where))
    if code == _GROUP:
        kind, parts, cut = _plain.decode(body)
        return Group(kind, tuple(parts), cut)
    raise ValueError(f"unknown extension type {code}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode)
_plain = msgspec.msgpack.Decoder(ext_hook=_decode)
_decoder = msgspec.msgpack.Decoder(Envelope, ext_hook=_decode)


def encode(envelope: Envelope) -> bytes:
    """Raises TypeError for a value that can not travel."""
    return _encoder.encode(envelope)


def decode(frame: bytes | memoryview) -> Envelope:
    """Raises msgspec.DecodeError or ValidationError for anything that is not an envelope."""
    return _decoder.decode(frame)
