"""The language model's node with random weights: of Orpheus-3B's size for the GPU, or tiny."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import torch
from torch import Tensor

from models.blocks.linear import Kernel
from models.blocks.rope_config import RopeConfig
from models.llama.config import LlamaConfig
from models.llama.network import Llama
from models.llama.nodes import LMSubmodule
from mstar.submodule import Outputs, Packed, Step


def _config(hidden: int, inner: int, layers: int, heads: int, kv_heads: int, head_dim: int, vocab: int) -> LlamaConfig:
    return LlamaConfig(
        family="llama",
        vocab=vocab,
        hidden=hidden,
        inner=inner,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        eps=1e-5,
        rope=RopeConfig(head_dim, 500_000.0),
        max_positions=131_072,
        tied=True,
    )


ORPHEUS_3B = _config(hidden=3072, inner=8192, layers=28, heads=24, kv_heads=8, head_dim=128, vocab=156_940)
TINY = _config(hidden=256, inner=512, layers=3, heads=4, kv_heads=2, head_dim=64, vocab=500)


def parameters(config: LlamaConfig) -> int:
    """Weights that a step reads."""
    attention = config.hidden * config.head_dim * 2 * (config.heads + config.kv_heads)
    return config.layers * (attention + 3 * config.hidden * config.inner) + config.vocab * config.hidden


class DrawnWeights:
    """Random matrices of the device itself, a function of their name; norms of ones."""

    def __init__(self, device: str) -> None:
        self._device = device

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name != "rope_freqs.weight"

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if len(shape) == 1:
            return torch.ones(shape, device=self._device)
        generator = torch.Generator(self._device).manual_seed(zlib.crc32(name.encode()))
        drawn = torch.randn(shape, generator=generator, device=self._device, dtype=torch.float32)
        return drawn.div_(shape[1] ** 0.5).to(torch.bfloat16)


class RandomLM(LMSubmodule):
    """Puts out `logits` as well."""

    def conclude(self, computed: Mapping[str, Tensor], packed: Packed, step: Step) -> Outputs:
        return {**super().conclude(computed, packed, step), "logits": list(computed["logits"])}


def random_lm(config: LlamaConfig, device: str, kernel: Kernel = "bfloat16") -> RandomLM:
    """Inputs `tokens` (a prompt) or `token`; greedy."""
    return RandomLM(Llama(config, DrawnWeights(device), kernel, device=device), max_batch=64)
