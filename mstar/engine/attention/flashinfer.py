"""Attention by FlashInfer over paged K/V, on CUDA, in 16-bit floats. The one file that knows FlashInfer.

K and V of a layer lie `[pages, 2, page_size, kv_heads, head_dim]`; pages of a sequence lie anywhere. One page more than
the pool has is scratch: the rows that pad a step to a graph's size write there.

A step is planned once, at its first layer, when the number of heads and the scale are known; the plan serves all
layers. Steps of one kind share a wrapper with its workspace: one token a row goes through the decode kernel, all else
through prefill, causal, seeing everything, or with a mask where there are blocks or kinds of sight mix. Labels, the
branches of guidance, are rows like others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flashinfer
import numpy as np
import torch
from torch import Tensor

from mstar.engine.attention.backend import CrossContext, PagedRow
from mstar.engine.attention.tables import Ints, Tables, padded, tables
from mstar.submodule import KVGeometry, Row

WORKSPACE = 128 * 2**20
"""Bytes of the wrappers' float workspace, as FlashInfer recommends. Steps follow one another: one serves them all."""
TENSOR_CORES = 4
"""Query heads a K/V head from which on decoding is faster on tensor cores."""


@dataclass(frozen=True, slots=True)
class Heads:
    """What a plan depends on beside the tables."""

    count: int
    dtype: torch.dtype
    scale: float | None


class FlashInferBackend:
    """K/V memory of one component on one CUDA device."""

    prefers_runs = False

    def __init__(self, geometry: KVGeometry, *, pages: int, page_size: int = 16, device: str = "cuda") -> None:
        """Raises ValueError for a geometry that the kernels do not take."""
        if geometry.dtype not in {torch.float16, torch.bfloat16}:
            raise ValueError(f"FlashInfer computes in 16-bit floats, the K/V geometry says {geometry.dtype}")
        self.geometry = geometry
        self.pages = pages
        self.page_size = page_size
        self.device = torch.device(device)
        shape = (geometry.layers, pages + 1, 2, page_size, geometry.kv_heads, geometry.head_dim)
        self.cache = torch.zeros(shape, dtype=geometry.dtype, device=self.device)
        self.workspace = torch.zeros(WORKSPACE, dtype=torch.uint8, device=self.device)
        self._eager = Wrappers(self)

    @property
    def scratch(self) -> int:
        """The page that is nobody's."""
        return self.pages

    def copy(self, source: Sequence[int], target: Sequence[int]) -> int:
        read, write = (torch.tensor(pages, device=self.device) for pages in (source, target))
        self.cache.index_copy_(1, write, self.cache.index_select(1, read))
        return len(source) * self.cache[:, 0].numel() * self.cache.element_size()

    def plan(self, rows: Sequence[PagedRow]) -> FlashInferAttention:
        step = tables(rows, self.page_size)
        return FlashInferAttention(self, rows, step, self._eager, StepFields.of(step, self.device))

    def fixed(self, rows: int, tokens: int) -> FixedPlan:
        """Plans of one size, for steps that are captured."""
        return FixedPlan(self, (rows, tokens))

    def read(self, pages: Sequence[int], length: int) -> Tensor:
        found = self.cache[:, torch.tensor(pages, dtype=torch.int64, device=self.device)]
        flat = found.transpose(1, 2).flatten(2, 3)  # [layers, 2, positions, kv_heads, head_dim]
        return flat[:, :, :length].clone(memory_format=torch.contiguous_format)

    def write(self, pages: Sequence[int], start: int, kv: Tensor) -> None:
        at = torch.arange(start, start + kv.shape[2], device=self.device)
        page = torch.tensor(pages, dtype=torch.int64, device=self.device)[at // self.page_size]
        given = kv.to(self.cache).permute(2, 0, 1, 3, 4)  # [positions, layers, 2, kv_heads, head_dim]
        self.cache.permute(1, 3, 0, 2, 4, 5)[page, at % self.page_size] = given

    def read_cross(self, context: CrossContext) -> Mapping[int, tuple[Tensor, Tensor]]:
        return {layer: (k.clone(), v.clone()) for layer, (k, v) in context.items()}

    def write_cross(self, context: Mapping[int, tuple[Tensor, Tensor]]) -> CrossContext:
        return {layer: (k.to(self.cache), v.to(self.cache)) for layer, (k, v) in context.items()}


@dataclass(frozen=True, slots=True)
class StepFields:
    """A step's tables on the device, as appending to pages wants them: parts of one int32 tensor."""

    flat: Tensor  # owner, positions, starts, filled, pages
    owner: Tensor  # [tokens]
    positions: Tensor  # [tokens]
    starts: Tensor  # [rows + 1]
    filled: Tensor  # [rows]
    pages: Tensor  # [pages] or more
    positions64: Tensor  # [tokens] int64

    @classmethod
    def of(cls, step: Tables, device: torch.device) -> StepFields:
        """Tensors of a step's own."""
        return cls._cut(torch.from_numpy(_flat(step)).to(device), step.rows, step.tokens)

    @classmethod
    def empty(cls, rows: int, tokens: int, pages: int, device: torch.device) -> StepFields:
        """Tensors for steps of one size, which stay where they are."""
        size = 2 * tokens + 2 * rows + 1 + pages
        return cls._cut(torch.zeros(size, dtype=torch.int32, device=device), rows, tokens)

    @classmethod
    def _cut(cls, flat: Tensor, rows: int, tokens: int) -> StepFields:
        sizes = (tokens, tokens, rows + 1, rows)
        owner, positions, starts, filled, pages = flat.split([*sizes, len(flat) - sum(sizes)])
        return cls(flat, owner, positions, starts, filled, pages, positions.long())

    def fill(self, step: Tables) -> None:
        """Take the tables of a step of this size."""
        given = torch.from_numpy(_flat(step))
        self.flat[: len(given)].copy_(given, non_blocking=True)
        self.positions64.copy_(self.positions)


def _flat(step: Tables) -> Ints:
    """The tables one behind the other, those of the step's size first."""
    return np.concatenate((step.owner, step.positions, step.starts, step.filled, step.pages))


class FixedPlan:
    """Plans of one size in buffers that stay where they are (see `mstar.engine.graphs.runner`)."""

    def __init__(self, backend: FlashInferBackend, size: tuple[int, int]) -> None:
        self._backend = backend
        self._size = size
        self._wrappers = Wrappers(backend, size)
        most = backend.pages + sum(size)
        self._fields = StepFields.empty(*size, most, backend.device)

    def plan(self, rows: Sequence[PagedRow]) -> FlashInferAttention:
        """A step made up to this size. Raises ValueError where that can not be."""
        backend = self._backend
        step = padded(tables(rows, backend.page_size), *self._size, backend.scratch, backend.page_size)
        self._fields.fill(step)
        attention = FlashInferAttention(backend, rows, step, self._wrappers, self._fields)
        if self._wrappers.heads is not None:
            attention.ready(self._wrappers.heads)
        return attention


class Wrappers:
    """FlashInfer's wrappers of one kind of step, made when they are first needed.

    With `size` = (rows, tokens) they are those of a captured graph: of that size, in buffers that stay where they are,
    and of one kernel, since a graph can not change to another.
    """

    def __init__(self, backend: FlashInferBackend, size: tuple[int, int] | None = None) -> None:
        self._backend = backend
        self._size = size
        self._made: dict[str, Any] = {}
        self._planned: dict[str, Heads] = {}

    @property
    def heads(self) -> Heads | None:
        """What the last plan was made for."""
        return next(iter(self._planned.values()), None)

    def plan(self, step: Tables, heads: Heads) -> Any:
        """A wrapper whose next runs are those of the step."""
        kind = "decode" if step.decodes else "prefill"
        wrapper = self._get(kind, heads)
        geometry, page_size = self._backend.geometry, self._backend.page_size
        starts, pages, filled = (torch.from_numpy(each) for each in (step.starts, step.pages, step.filled))
        common: dict[str, Any] = {
            "q_data_type": heads.dtype,
            "kv_data_type": geometry.dtype,
            "sm_scale": heads.scale,
        }
        if kind == "decode":
            sizes = (heads.count, geometry.kv_heads, geometry.head_dim, page_size)
            wrapper.plan(starts, pages, filled, *sizes, **common)
        else:
            sizes = (heads.count, geometry.kv_heads, geometry.head_dim, page_size)
            device = self._backend.device
            tensors = [torch.from_numpy(step.queries), starts, pages, filled]
            if self._size is None:
                tensors = [tensor.to(device, non_blocking=True) for tensor in tensors]
            mask = None if step.mask is None else torch.from_numpy(step.mask).to(device)
            wrapper.plan(*tensors, *sizes, custom_mask=mask, causal=step.sight == "causal", **common)
        self._planned[kind] = heads
        return wrapper

    def plan_cross(self, step: Tables, lengths: Sequence[int], heads: Heads) -> Any:
        """A wrapper whose next runs are the step's tokens over contexts of these lengths, one a row."""
        geometry, device = self._backend.geometry, self._backend.device
        wrapper = self._get("cross", heads)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        wrapper.plan(
            torch.from_numpy(step.queries).to(device),
            torch.from_numpy(starts).to(device),
            *(heads.count, geometry.kv_heads, geometry.head_dim),
            causal=False,
            sm_scale=heads.scale,
            q_data_type=heads.dtype,
            kv_data_type=geometry.dtype,
        )
        return wrapper

    def _get(self, kind: str, heads: Heads) -> Any:
        if kind not in self._made:
            self._made[kind] = self._make(kind, heads)
        return self._made[kind]

    def _make(self, kind: str, heads: Heads) -> Any:
        backend = self._backend
        fixed: dict[str, Any] = {}
        if self._size is not None:
            rows, tokens = self._size

            def ints(count: int) -> Tensor:
                return torch.zeros(count, dtype=torch.int32, device=backend.device)

            buffers = {"indptr": ints(rows + 1), "indices": ints(backend.pages + rows + tokens), "last": ints(rows)}
            fixed = {"use_cuda_graph": True, "backend": "fa2"}
            if kind == "decode":
                fixed |= {
                    "paged_kv_indptr_buffer": buffers["indptr"],
                    "paged_kv_indices_buffer": buffers["indices"],
                    "paged_kv_last_page_len_buffer": buffers["last"],
                }
            else:
                fixed |= {
                    "qo_indptr_buf": ints(rows + 1),
                    "paged_kv_indptr_buf": buffers["indptr"],
                    "paged_kv_indices_buf": buffers["indices"],
                    "paged_kv_last_page_len_buf": buffers["last"],
                    "max_total_num_rows": tokens,
                }
        given = (backend.workspace, "NHD")
        match kind:
            case "decode":
                cores = heads.count // backend.geometry.kv_heads >= TENSOR_CORES
                return flashinfer.BatchDecodeWithPagedKVCacheWrapper(*given, use_tensor_cores=cores, **fixed)
            case "cross":
                return flashinfer.BatchPrefillWithRaggedKVCacheWrapper(*given)
            case _:
                return flashinfer.BatchPrefillWithPagedKVCacheWrapper(*given, **fixed)


class FlashInferAttention:
    """One step's view (see `mstar.submodule.Attention`)."""

    gathered = 0

    def __init__(
        self,
        backend: FlashInferBackend,
        rows: Sequence[PagedRow],
        step: Tables,
        wrappers: Wrappers,
        fields: StepFields,
    ) -> None:
        self._backend = backend
        self._paged = rows
        self._step = step
        self._fields = fields
        self._wrappers = wrappers
        self.rows: Sequence[Row] = tuple(each.row for each in rows)
        self._plan: tuple[Heads, Any] | None = None
        self._cross: Any = None
        self._written: dict[int, dict[int, tuple[Tensor, Tensor]]] = {}

    @property
    def positions(self) -> Tensor:
        return self._fields.positions64

    @property
    def written_cross(self) -> Mapping[int, CrossContext]:
        return self._written

    def ready(self, heads: Heads) -> Any:
        """The planned wrapper; a step has one number of heads and one scale, as its network has."""
        if self._plan is None:
            self._plan = (heads, self._wrappers.plan(self._step, heads))
        planned, wrapper = self._plan
        if planned != heads:
            raise ValueError(f"a step is planned once: {planned}, then {heads}")
        return wrapper

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
        cache = self._backend.cache[layer]
        at = self._fields
        flashinfer.append_paged_kv_cache(
            *(k.to(cache.dtype), v.to(cache.dtype), at.owner, at.positions, cache),
            *(at.pages, at.starts, at.filled, "NHD"),
        )
        result: Tensor = self.ready(Heads(q.shape[1], q.dtype, scale)).run(q.contiguous(), cache)
        return result

    def write_cross(self, layer: int, row: int, k: Tensor, v: Tensor) -> None:
        by_layer = self._written.setdefault(self.rows[row].call, {})
        by_layer[layer] = (k.to(self._backend.cache).contiguous(), v.to(self._backend.cache).contiguous())

    def attend_cross(self, layer: int, q: Tensor, *, scale: float | None = None) -> Tensor:
        """Contexts lie one behind another for the kernel: those of several rows are copied together."""
        found = [self._context(each, layer) for each in self._paged]
        keys, values = found[0] if len(found) == 1 else (torch.cat([pair[i] for pair in found]) for i in (0, 1))
        if self._cross is None:
            lengths = [len(k) for k, _ in found]
            self._cross = self._wrappers.plan_cross(self._step, lengths, Heads(q.shape[1], q.dtype, scale))
        result: Tensor = self._cross.run(q.contiguous(), keys, values)
        return result

    def _context(self, paged: PagedRow, layer: int) -> tuple[Tensor, Tensor]:
        written = self._written.get(paged.row.call, {}).get(layer)
        if written is None and layer not in paged.cross:
            raise LookupError(f"no cross-attention context was written for layer {layer}")
        return paged.cross[layer] if written is None else written
