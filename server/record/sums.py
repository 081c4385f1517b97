"""Checksums of values and commands: equal for equal runs, and told apart from what only timing decides."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping

import numpy as np

from mstar.tensors import Value
from server.events.server import encode
from server.session.commands import BargedIn, Command, FeedMic, PlayAudio, Send

SHOWN = 200
"""Characters of a value that are kept to be read."""
_CACHED = re.compile(rb'"cached_tokens":\d+,"cached_tokens_details":\{"text_tokens":\d+')
"""Of a response's usage, as it is written."""


def sum_of(value: Value) -> int:
    """CRC-32 of what a task emitted."""
    return _value(_timeless(value), 0)


def shown(value: Value) -> str:
    """A value as one reads it; sound by its length."""
    return _words(_timeless(value))[:SHOWN]


def sum_of_commands(commands: Iterable[Command]) -> int:
    """CRC-32 of what a step of the core gave."""
    total = 0
    for command in commands:
        match command:
            case Send(event=event):
                total = zlib.crc32(_CACHED.sub(b"", encode(event)), total)
            case PlayAudio():
                place = (command.response_id, command.item_id, command.output_index, command.start, command.last)
                total = zlib.crc32(np.ascontiguousarray(command.pcm).tobytes(), zlib.crc32(repr(place).encode(), total))
            case FeedMic(index=index, rows=rows):
                total = zlib.crc32(np.ascontiguousarray(rows).tobytes(), zlib.crc32(str(index).encode(), total))
            case BargedIn():
                pass  # a measurement
            case _:
                total = zlib.crc32(repr(command).encode(), total)
    return total


def _timeless(value: Value) -> Value:
    """Without how long something took, and how much of a prompt was cached: that depends on how far others had come."""
    if isinstance(value, Mapping):
        timing = {"elapsed_ms"} | ({"reused"} if "prompt" in value else set())  # of `usage` and `begun`
        return {name: each for name, each in value.items() if name not in timing}
    return value


def _value(value: Value, total: int) -> int:
    match value:
        case np.ndarray():
            head = f"{value.dtype.str}{value.shape}".encode()
            return zlib.crc32(np.ascontiguousarray(value).tobytes(), zlib.crc32(head, total))
        case Mapping():
            for name, each in sorted(value.items()):
                total = _value(each, zlib.crc32(str(name).encode(), total))
            return total
        case list() | tuple():
            total = zlib.crc32(str(len(value)).encode(), total)
            for each in value:
                total = _value(each, total)
            return total
        case _:
            return zlib.crc32(repr(value).encode(), total)


def _words(value: Value) -> str:
    match value:
        case np.ndarray():
            return f"{value.dtype}{list(value.shape)}" if value.size > 8 else str(value.tolist())
        case Mapping():
            return "{" + ", ".join(f"{name}: {_words(each)}" for name, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(_words(each) for each in value[:8]) + (", …]" if len(value) > 8 else "]")
        case _:
            return str(value)
