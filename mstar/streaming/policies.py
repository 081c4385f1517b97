"""When a stream's consumer fires, and on which items: the seven chunk policies (pure, frozen, no state).

A policy is what a family writes on an edge. `rule(policy)` flattens it, wrappers included, into the few numbers a
`StreamBuffer` works with: how many new items the next chunk wants, and how many old ones it sees again as context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from mstar.errors import GraphError


def _at_least(policy: str, field: str, value: float, least: float) -> None:
    if not value >= least:  # which NaN is not
        raise GraphError(f"{policy}: {field} is {value}, must be at least {least}")


@dataclass(frozen=True, slots=True)
class FixedChunkPolicy:
    """Fires every `k` items."""

    k: int

    def __post_init__(self) -> None:
        _at_least("FixedChunkPolicy", "k", self.k, 1)


@dataclass(frozen=True, slots=True)
class SlidingWindowChunkPolicy:
    """Fires on windows of `w` items, each `s` items after the one before; s > w would lose items."""

    w: int
    s: int

    def __post_init__(self) -> None:
        _at_least("SlidingWindowChunkPolicy", "s", self.s, 1)
        if self.s > self.w:
            raise GraphError(f"SlidingWindowChunkPolicy: stride {self.s} over windows of {self.w} loses items")


@dataclass(frozen=True, slots=True)
class LeftContextChunkPolicy:
    """Fires on `k` new items after the last `c` old ones (fewer while there are fewer); c ≤ k."""

    k: int
    c: int

    def __post_init__(self) -> None:
        _at_least("LeftContextChunkPolicy", "k", self.k, 1)
        _at_least("LeftContextChunkPolicy", "c", self.c, 0)
        if self.c > self.k:
            raise GraphError(f"LeftContextChunkPolicy: a context of {self.c} is longer than the chunk of {self.k}")


LEAST_GROWTH = 1.01
"""Of a ramp that grows; one of less would take more chunks to its end than can be counted out ahead."""


@dataclass(frozen=True, slots=True)
class RampChunkPolicy:
    """Small first chunk, growing: first, first · growth, first · growth² … up to `k` new items, after `c` old ones.

    The ramp goes over the whole stream: a new segment does not start it again.
    """

    first: int
    growth: float
    k: int
    c: int = 0

    def __post_init__(self) -> None:
        _at_least("RampChunkPolicy", "first", self.first, 1)
        if self.growth != 1 and not self.growth >= LEAST_GROWTH:
            raise GraphError(f"RampChunkPolicy: growth is {self.growth}, must be 1, or at least {LEAST_GROWTH}")
        _at_least("RampChunkPolicy", "k", self.k, self.first)
        _at_least("RampChunkPolicy", "c", self.c, 0)


@dataclass(frozen=True, slots=True)
class LatestChunkPolicy:
    """Fires on the newest item only; older ones that wait are dropped and counted (camera frames)."""


@dataclass(frozen=True, slots=True)
class ContinueChunkPolicy:
    """As `inner`; after the stream's end, empty chunks without end, until the consumer's own verdict stops its loop."""

    inner: ChunkPolicy


@dataclass(frozen=True, slots=True)
class DeadlineChunkPolicy:
    """As `inner`, or whatever is there once the oldest waiting item has waited `ms` milliseconds."""

    inner: ChunkPolicy
    ms: float

    def __post_init__(self) -> None:
        _at_least("DeadlineChunkPolicy", "ms", self.ms, 0)
        if rule(self.inner).latest:
            raise GraphError("DeadlineChunkPolicy: LatestChunkPolicy never makes an item wait")


ChunkPolicy: TypeAlias = (
    FixedChunkPolicy
    | SlidingWindowChunkPolicy
    | LeftContextChunkPolicy
    | ContinueChunkPolicy
    | RampChunkPolicy
    | DeadlineChunkPolicy
    | LatestChunkPolicy
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A policy in the numbers a buffer works with.

    `sizes[i]` = new items wanted by chunk i, the last entry for all further ones; i counts the chunks of the segment
    if `per_segment`, else those of the stream.
    """

    sizes: tuple[int, ...]
    context: int = 0
    per_segment: bool = True
    latest: bool = False
    continues: bool = False
    wait_ms: float | None = None

    @property
    def largest(self) -> int:
        """Most items a chunk holds: what a buffer must have room for, or its stream would never fire."""
        return max(self.sizes[0], max(self.sizes[1:] or self.sizes) + self.context)


@cache
def rule(policy: ChunkPolicy) -> Rule:
    """The policy as numbers."""
    match policy:
        case FixedChunkPolicy(k):
            return Rule((k,))
        case SlidingWindowChunkPolicy(w, s):
            return Rule((w, s), context=w - s)
        case LeftContextChunkPolicy(k, c):
            return Rule((k,), context=c)
        case RampChunkPolicy(first, growth, k, c):
            return Rule(_ramp(first, growth, k), context=c, per_segment=False)
        case LatestChunkPolicy():
            return Rule((1,), latest=True)
        case ContinueChunkPolicy(inner):
            of = rule(inner)
            return Rule(of.sizes, of.context, of.per_segment, of.latest, True, of.wait_ms)
        case DeadlineChunkPolicy(inner, ms):
            of = rule(inner)
            wait = ms if of.wait_ms is None else min(ms, of.wait_ms)
            return Rule(of.sizes, of.context, of.per_segment, of.latest, of.continues, wait)


def _ramp(first: int, growth: float, k: int) -> tuple[int, ...]:
    if growth == 1:
        return (first,)
    sizes = []
    size = float(first)
    while size < k:
        sizes.append(round(size))
        size *= growth
    return (*sizes, k)


Described: TypeAlias = "Mapping[str, str | int | float | Described]"


def describe(policy: ChunkPolicy) -> Described:
    """The policy in plain JSON types, for drawing: its kind, its numbers, the policy inside."""
    match policy:
        case FixedChunkPolicy(k):
            return {"policy": "fixed", "k": k}
        case SlidingWindowChunkPolicy(w, s):
            return {"policy": "sliding_window", "w": w, "s": s}
        case LeftContextChunkPolicy(k, c):
            return {"policy": "left_context", "k": k, "c": c}
        case RampChunkPolicy(first, growth, k, c):
            return {"policy": "ramp", "first": first, "growth": growth, "k": k, "c": c}
        case LatestChunkPolicy():
            return {"policy": "latest"}
        case ContinueChunkPolicy(inner):
            return {"policy": "continue", "inner": describe(inner)}
        case DeadlineChunkPolicy(inner, ms):
            return {"policy": "deadline", "inner": describe(inner), "ms": ms}
