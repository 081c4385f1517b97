"""What a streaming input carries into one firing: some items of a stream, and which ones they are."""

from __future__ import annotations

from dataclasses import dataclass

from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class Span:
    """Which items of a stream a chunk holds: `n_context` already seen ones, then `n_new`, starting at item `first`."""

    stream: str
    first: int
    n_context: int
    n_new: int
    segment: int = 0
    segment_final: bool = False  # the last chunk of its segment (flush, clause, walk border)
    final: bool = False  # the last chunk of the stream


@dataclass(frozen=True, slots=True, eq=False)
class Chunk(Span):
    """A span with its items.

    `value` of a stream of single items: one item as it is; several arrays stacked on a new leading axis; several other
    values as a tuple; None without items. Of a stream of rows: one array [n_context + n_new, …]; None without items.
    """

    value: Value = None
