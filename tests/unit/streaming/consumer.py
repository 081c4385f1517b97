"""A consumer of a stream of numbers: takes what is ready and says what it got, in plain types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mstar.streaming.buffer import StreamBuffer
from mstar.streaming.chunk import Chunk


@dataclass(frozen=True)
class Got:
    items: tuple[Any, ...]
    first: int
    n_context: int
    segment: int
    segment_final: bool
    final: bool

    @property
    def new(self) -> tuple[Any, ...]:
        return self.items[self.n_context :]


def items_of(chunk: Chunk) -> tuple[Any, ...]:
    """The items of a chunk of numbers (none of them None) as a tuple."""
    n = chunk.n_context + chunk.n_new
    if n == 0:
        assert chunk.value is None
        return ()
    value: Any = chunk.value
    items = (value,) if n == 1 else tuple(value)
    assert len(items) == n
    return items


def got(chunk: Chunk) -> Got:
    return Got(items_of(chunk), chunk.first, chunk.n_context, chunk.segment, chunk.segment_final, chunk.final)


def drain(buffer: StreamBuffer, now: float = 0.0) -> list[Got]:
    """All chunks that are ready (of a stream that does not continue for ever)."""
    chunks = []
    while buffer.ready(now):
        chunks.append(got(buffer.take(now)))
    return chunks
