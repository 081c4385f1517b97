"""What the author of a node writes, and what the engine gives them (torch side of a family).

A submodule is the code of one `GraphNode`. The engine batches the firings of that node over all requests and calls it
once a step:

    packed  = submodule.collate(calls)              # python values → tensors, on the node's device
    outputs = submodule.forward(packed, step)       # one value per call and output name
    stop    = submodule.verdict(call, outputs_of_that_call)

Everything the engine knows about a firing is in its `Call`; a submodule keeps no per-request state of its own. State
that lives across firings is a value: it arrives as `call.state` and leaves as the output named `STATE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from mstar.streaming.chunk import Span
from mstar.tensors import Many, Output, Rows, Value

__all__ = [
    "STATE",
    "Attention",
    "Call",
    "Capturable",
    "Divisible",
    "KVGeometry",
    "KVSubmodule",
    "Many",
    "Output",
    "Outputs",
    "Packed",
    "Recomputable",
    "Row",
    "Rows",
    "Sampler",
    "Sampling",
    "Silent",
    "Span",
    "Step",
    "Submodule",
]

STATE = "__state__"
"""Name of the output that replaces the committed state of (session or request, node)."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request's firing of one node."""

    request: str
    walk: str
    inputs: Mapping[str, Value]
    settings: Mapping[str, Value] = field(default_factory=dict)  # the request's settings (sampling, voice …)
    spans: Mapping[str, Span] = field(default_factory=dict)  # per streaming input
    state: Value = None  # committed state, None at first
    iteration: int = 0  # pass of the innermost loop around the node, from 0
    seed: int = 0  # of (request, node); pass k draws with (seed, k)
    reused: int = 0  # KV nodes: leading keys whose K/V are there already; collate skips them
    cached: int = 0  # KV nodes: those of them that were there before the prompt's first step
    length: int = 0  # KV nodes: positions in the sequence before this step (= reused on a prefill)


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's share of a packed step; a call has one row per KV label it uses (CFG branches are rows)."""

    call: int  # index into the step's calls
    tokens: int  # new positions in this step
    label: str = "main"
    causal: bool = True
    store: bool = True  # append this step's K/V to the sequence; else they are seen by this step only
    blocks: tuple[int, ...] = ()  # block-causal step: sizes of the blocks; a token sees its whole block and all before


@runtime_checkable
class Attention(Protocol):
    """A packed step's view of the KV cache. Tokens of all rows lie one after another in row order."""

    @property
    def rows(self) -> Sequence[Row]: ...

    @property
    def positions(self) -> Tensor:
        """[tokens] int64, absolute position of each packed token in its own sequence."""
        ...

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
        """Append k, v [tokens, kv_heads, dim] to the rows' sequences and attend over them.

        q [tokens, heads, dim] (heads a multiple of kv_heads; rope already applied) → [tokens, heads, dim].
        A row's result does not depend on the other rows of the step.
        """
        ...

    def write_cross(self, layer: int, row: int, k: Tensor, v: Tensor) -> None:
        """Replace the cross-attention K/V of a row's request: k, v [context, kv_heads, dim]."""
        ...

    def attend_cross(self, layer: int, q: Tensor, *, scale: float | None = None) -> Tensor:
        """q [tokens, heads, dim] over each row's own cross-attention context → [tokens, heads, dim]."""
        ...


@dataclass(frozen=True, slots=True)
class Packed:
    """What collate returns: named tensors for forward, and for KV nodes the rows they are packed in."""

    tensors: Mapping[str, Tensor]
    rows: tuple[Row, ...] = ()


class Sampler(Protocol):
    def __call__(self, logits: Tensor) -> Tensor:
        """logits [calls, vocab] (row i belongs to call i) → ids [calls] int64, of the host.

        Each row by its own request's settings (temperature, top_k, top_p, repetition_penalty, seed), drawn from
        (seed, position), so that a row's token does not depend on its batch mates.
        """
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of a node for a batch of calls."""

    calls: Sequence[Call]
    attention: Attention | None = None  # KV nodes
    sample: Sampler | None = None  # KV nodes with a sampling configuration


Outputs: TypeAlias = Mapping[str, Sequence[Output]]
"""Output name → one value per call. `None` = this call puts nothing on that edge this time. On a streaming edge a value
is one item, `Many((a, b))` is several, `Rows(array)` is one item a row."""


@runtime_checkable
class Submodule(Protocol):
    """Code of a node on the StatelessEngine."""

    max_batch: int

    def collate(self, calls: Sequence[Call]) -> Packed: ...

    def forward(self, packed: Packed, step: Step) -> Outputs: ...

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        """True = stop the innermost DynamicLoop around the node after this pass."""
        ...


@dataclass(frozen=True, slots=True)
class KVGeometry:
    """Shape of a node's KV cache. Bytes per position = layers · 2 · kv_heads · head_dim · itemsize."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype = torch.float32
    labels: tuple[str, ...] = ("main",)
    cross_context: int = 0  # longest cross-attention context, 0 = none
    cross_layers: int = 0


@dataclass(frozen=True, slots=True)
class Sampling:
    """Default sampling of a KV node; a request's settings of the same names override it."""

    temperature: float = 0.0  # 0 = greedy
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0


@runtime_checkable
class KVSubmodule(Submodule, Protocol):
    """Code of a node on the KVCacheEngine."""

    geometry: KVGeometry
    sampling: Sampling | None

    def keys(self, call: Call) -> np.ndarray:
        """[n] int64: what stands at the positions this call wants in the sequence.

        On a walk whose node says `prompt=True` they describe the whole sequence from position 0 (token ids; for media
        a digest of (medium, offset)); the engine keeps the longest common prefix with what is cached, and calls
        collate with `call.reused` set (at most n - 1, so that the last position is always computed, unless it is
        `Silent`). On other walks they are appended.
        """
        ...


@runtime_checkable
class Divisible(Protocol):
    """A KVSubmodule whose prompts may be computed in several steps, so that a long one does not hold up others."""

    def cut(self, call: Call, stop: int) -> Call:
        """The same call with the prompt that is its first `stop` keys; its outputs are not used."""
        ...


@runtime_checkable
class Recomputable(Protocol):
    """A KVSubmodule whose K/V follow from the keys alone, so that those of a waiting request may be dropped."""

    together: int
    """Positions decoded one by one that come out the same, bit for bit, as one row with `blocks` of 1 each."""

    def recompute(self, call: Call, keys: np.ndarray) -> Call:
        """A prompt with these keys, for a request whose next call is `call`; its outputs are not used."""
        ...


@runtime_checkable
class Silent(Protocol):
    """A KVSubmodule whose prompts put nothing out: one that is cached is reused whole, and has no row in its step."""

    silent: bool


@runtime_checkable
class Capturable(Protocol):
    """A KVSubmodule whose forward is `conclude(compute(packed.tensors, attention), packed, step)`.

    So that what it computes can be captured as a CUDA graph, or compiled. The first axis of every tensor counts the
    step's tokens, or its calls.
    """

    capturable: bool
    """Whether it keeps what `compute` promises; else it runs as it is."""

    def blank(self, counts: Sequence[int]) -> Mapping[str, Tensor]:
        """What `compute` takes in a step of rows of so many tokens, with any values: to capture it ahead."""
        ...

    def compute(self, tensors: Mapping[str, Tensor], attention: Attention) -> Mapping[str, Tensor]:
        """Tensors to tensors, on the device alone: nothing is read back, nothing depends on values."""
        ...

    def conclude(self, computed: Mapping[str, Tensor], packed: Packed, step: Step) -> Outputs:
        """What was computed, sampled and told."""
        ...
