"""Captured steps without a CUDA device: what is recorded runs again, attention is by torch in plans of fixed sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from mstar.engine.attention.backend import PagedRow, PlannedAttention
from mstar.engine.attention.torch_backend import TorchAttention, TorchBackend
from mstar.engine.graphs.runner import Tensors
from mstar.engine.kv.settings import KVSettings
from mstar.submodule import KVGeometry, Row


class Again:
    """Records by running; what it gives back runs the same function into the same results."""

    def __init__(self) -> None:
        self.recorded = 0

    def record(self, run: Callable[[], Tensors]) -> tuple[Callable[[], None], Tensors]:
        self.recorded += 1
        results = {name: tensor.clone() for name, tensor in run().items()}

        def replay() -> None:
            for name, tensor in run().items():
                results[name].copy_(tensor)

        return replay, results


class Current:
    """An attention that stands for the newest plan, as a captured kernel reads the newest tables."""

    def __init__(self) -> None:
        self.now: TorchAttention

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
        return self.now.attend(layer, q, k, v, scale=scale)

    def __getattr__(self, name: str) -> object:
        return getattr(self.now, name)


class Sized:
    """Makes rows up to a size, in the backend's pages from `scratch` on."""

    def __init__(self, backend: TorchBackend, rows: int, tokens: int, scratch: Sequence[int]) -> None:
        self.backend, self.size, self.attention, self.scratch = backend, (rows, tokens), Current(), scratch

    def plan(self, rows: Sequence[PagedRow]) -> PlannedAttention:
        more, left = self.size[0] - len(rows), self.size[1] - sum(each.row.tokens for each in rows)
        sizes = [1] * (more - 1) + [left - more + 1] if more else []
        made_up = [PagedRow(Row(0, size), self.scratch, 0, {}) for size in sizes]
        self.attention.now = self.backend.plan([*rows, *made_up])
        return self.attention  # type: ignore[return-value]


class FixedTorch(TorchBackend):
    """A torch backend whose steps can be captured."""

    def __init__(self, geometry: KVGeometry, settings: KVSettings) -> None:
        beyond = 1024 // settings.page_size
        size = settings.page_size
        super().__init__(geometry, pages=settings.pages + beyond, page_size=size, device=settings.device)
        self.pages = self.scratch = settings.pages
        self._beyond = range(settings.pages, settings.pages + beyond)

    def fixed(self, rows: int, tokens: int) -> Sized:
        return Sized(self, rows, tokens, self._beyond)
