"""What the K/V engine needs of an attention backend. The backend owns the tensors and their layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from mstar.submodule import Attention, Row

CrossContext: TypeAlias = Mapping[int, tuple[Tensor, Tensor]]
"""Layer → cross-attention K and V of one request, in the backend's own layout."""


@dataclass(frozen=True, slots=True)
class PagedRow:
    """A row of a step and where its sequence lies. Its pages cover `start + row.tokens` positions."""

    row: Row
    pages: Sequence[int]
    start: int  # positions before this step
    cross: CrossContext


class PageStore(Protocol):
    """Memory for K/V pages."""

    @property
    def pages(self) -> int: ...

    @property
    def page_size(self) -> int:
        """Positions a page holds."""
        ...

    @property
    def prefers_runs(self) -> bool:
        """A sequence in adjacent pages is read faster than one in scattered pages."""
        ...

    def copy(self, source: Sequence[int], target: Sequence[int]) -> int:
        """Copy whole pages, all layers; source and target are disjoint. Returns the bytes copied."""
        ...


class PlannedAttention(Attention, Protocol):
    """The view of one step, and what the engine reads from it afterwards."""

    @property
    def written_cross(self) -> Mapping[int, CrossContext]:
        """Call index → what `write_cross` was given in this step; it replaces the request's context on commit."""
        ...

    @property
    def gathered(self) -> int:
        """Rows whose scattered pages had to be copied together before they could be read."""
        ...


class AttentionBackend(PageStore, Protocol):
    def plan(self, rows: Sequence[PagedRow]) -> PlannedAttention: ...

    def read(self, pages: Sequence[int], length: int) -> Tensor:
        """A copy of the first `length` positions in the pages, [layers, 2, length, kv_heads, head_dim]."""
        ...

    def write(self, pages: Sequence[int], start: int, kv: Tensor) -> None:
        """Put kv [layers, 2, positions, kv_heads, head_dim] into the pages, from position `start` of them on."""
        ...

    def read_cross(self, context: CrossContext) -> Mapping[int, tuple[Tensor, Tensor]]:
        """A copy of a cross-attention context: layer → K, V, each [context, kv_heads, head_dim]."""
        ...

    def write_cross(self, context: Mapping[int, tuple[Tensor, Tensor]]) -> CrossContext:
        """The same in the backend's own layout."""
        ...


class SizedPlan(Protocol):
    """Plans for steps of one size, in buffers that stay where they are, as captured graphs need."""

    def plan(self, rows: Sequence[PagedRow]) -> PlannedAttention: ...


@runtime_checkable
class FixedSizes(Protocol):
    """A backend whose steps can be captured."""

    @property
    def scratch(self) -> int:
        """A page that is nobody's."""
        ...

    def fixed(self, rows: int, tokens: int) -> SizedPlan: ...
