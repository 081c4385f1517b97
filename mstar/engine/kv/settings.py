"""Size and rules of one component's K/V memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mstar.placement.memory import BYTES, check_memory, memory_bytes
from mstar.submodule import KVGeometry


@dataclass(frozen=True, slots=True)
class KVSettings:
    """Bytes = pages · page_size · layers · 2 · kv_heads · head_dim · itemsize."""

    pages: int = 2048
    page_size: int = 16  # positions
    cross_contexts: int = 16  # requests that may have a cross-attention context at a time
    kept: int = 2  # idle sequences a session keeps for its next prompts
    reuse: bool = True
    shared: bool = True  # prompts in pieces reuse what other sessions computed, whole grains of it
    grain: int = 32  # positions at whose multiples a prompt may be cut without changing a bit (see docs/determinism.md)
    unheld: int = 64  # pages that stay cached when the session that computed them has ended
    piece: int = 64  # new positions of a prompt a step, where the submodule is `Divisible`; 0 = all
    budget: int = 64  # new prompt positions a step over all requests, likewise; exceeded by less than a piece
    graphs: bool = True  # decode steps are replayed as CUDA graphs, on a CUDA device and where the submodule allows it
    compile: bool = False  # the submodule's network goes through torch.compile
    device: str = "cpu"

    def shareable(self, common: int, prompt: int) -> int:
        """How many of `common` leading positions a prompt of `prompt` takes over from others.

        Half a grain is left to compute, since a few positions may take a path of their own through the kernels.
        """
        return max(0, min(common, prompt - self.grain // 2)) // self.grain * self.grain


def default_settings(device: str) -> KVSettings:
    """Of a device: on a GPU a step of a thousand positions costs little more than one of a hundred."""
    if device.startswith("cuda"):
        return KVSettings(pages=8192, unheld=2048, piece=1024, budget=2048, device=device)
    return KVSettings(device=device)


def page_bytes(geometry: KVGeometry, page_size: int) -> int:
    """Bytes of one page, all layers."""
    return page_size * geometry.layers * 2 * geometry.kv_heads * geometry.head_dim * geometry.dtype.itemsize


def kv_settings(given: Mapping[str, object], geometry: KVGeometry, default: KVSettings) -> KVSettings:
    """`default` with what a declaration or a file gives over it. Raises ValueError, with the field."""
    check_memory(given)
    plain: dict[str, Any] = {name: value for name, value in given.items() if name != BYTES}
    settings = replace(default, **plain)
    if BYTES not in given:
        return settings
    each, size = page_bytes(geometry, settings.page_size), memory_bytes(given[BYTES])
    if size < each:
        raise ValueError(f"bytes: {size} hold no page, which has {each}")
    return replace(settings, pages=size // each)
