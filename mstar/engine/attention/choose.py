"""Which attention a component gets."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TypeAlias

import torch

from mstar.engine.attention.backend import AttentionBackend
from mstar.engine.attention.torch_backend import TorchBackend
from mstar.engine.kv.settings import KVSettings
from mstar.submodule import KVGeometry

HEAD_DIMS = frozenset({64, 128, 256})
"""Channels of a head that FlashInfer's kernels are made for. With others they are not refused but wrong."""
HALVES = frozenset({torch.float16, torch.bfloat16})

MakeBackend: TypeAlias = Callable[[KVGeometry, KVSettings], AttentionBackend]


def torch_backend(geometry: KVGeometry, settings: KVSettings) -> AttentionBackend:
    """K/V memory read by torch operators."""
    return TorchBackend(geometry, pages=settings.pages, page_size=settings.page_size, device=settings.device)


def best_backend(geometry: KVGeometry, settings: KVSettings) -> AttentionBackend:
    """FlashInfer on CUDA, where it is installed and has kernels for the geometry; else torch."""
    known = geometry.dtype in HALVES and geometry.head_dim in HEAD_DIMS
    if not (settings.device.startswith("cuda") and known and find_spec("flashinfer")):
        return torch_backend(geometry, settings)
    backend: AttentionBackend = import_module("mstar.engine.attention.flashinfer").FlashInferBackend(
        geometry, pages=settings.pages, page_size=settings.page_size, device=settings.device
    )
    return backend
