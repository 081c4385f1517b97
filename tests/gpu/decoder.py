"""A Llama-shaped decoder of random weights for the GPU: of Orpheus-3B's size, or tiny."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mstar.submodule import Attention, Call, KVGeometry, Outputs, Packed, Row, Sampling, Step
from mstar.tensors import Output


@dataclass(frozen=True)
class Size:
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    @property
    def parameters(self) -> int:
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.inner) + self.vocab * self.hidden


ORPHEUS_3B = Size(hidden=3072, inner=8192, layers=28, heads=24, kv_heads=8, head_dim=128, vocab=156_940)
TINY = Size(hidden=256, inner=512, layers=3, heads=4, kv_heads=2, head_dim=64, vocab=500)


class RandomDecoder:
    """Walks `prefill` (input `tokens`) and `decode` (input `token`); output `token`."""

    capturable = True

    def __init__(
        self, size: Size, device: str, dtype: torch.dtype = torch.bfloat16, *, sampling: Sampling | None = None
    ) -> None:
        self.size = size
        self.max_batch = 64
        self.sampling: Sampling | None = sampling or Sampling()
        self.geometry = KVGeometry(size.layers, size.kv_heads, size.head_dim, dtype)
        generator = torch.Generator(device).manual_seed(1)

        def matrix(out: int, width: int) -> Tensor:
            drawn = torch.randn(out, width, generator=generator, device=device, dtype=torch.float32)
            scaled: Tensor = drawn / width**0.5
            return scaled.to(dtype)

        heads = (size.heads + 2 * size.kv_heads) * size.head_dim
        self.embedding = matrix(size.vocab, size.hidden)
        self.qkv = [matrix(heads, size.hidden) for _ in range(size.layers)]
        self.out = [matrix(size.hidden, size.heads * size.head_dim) for _ in range(size.layers)]
        self.gate_up = [matrix(2 * size.inner, size.hidden) for _ in range(size.layers)]
        self.down = [matrix(size.hidden, size.inner) for _ in range(size.layers)]
        half = size.head_dim // 2
        self.frequencies = 500_000.0 ** -(torch.arange(half, device=device) / half)

    def keys(self, call: Call) -> np.ndarray:
        given = call.inputs["tokens"] if "tokens" in call.inputs else [call.inputs["token"]]
        return np.asarray(given, dtype=np.int64)

    def cut(self, call: Call, stop: int) -> Call:
        return replace(call, inputs={"tokens": self.keys(call)[:stop]})

    def collate(self, calls: Sequence[Call]) -> Packed:
        ids = [self.keys(call)[call.reused if "tokens" in call.inputs else 0 :] for call in calls]
        rows = tuple(Row(i, len(own)) for i, own in enumerate(ids))
        device = self.embedding.device
        tensors = {"ids": torch.from_numpy(np.concatenate(ids)).to(device)}
        if any(row.tokens > 1 for row in rows):
            tensors["last"] = (torch.tensor([row.tokens for row in rows]).cumsum(0) - 1).to(device)
        return Packed(tensors, rows)

    def compute(self, tensors: Mapping[str, Tensor], attention: Attention) -> Mapping[str, Tensor]:
        size = self.size
        x = self.embedding[tensors["ids"]]
        angles = attention.positions[:, None, None] * self.frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in range(size.layers):
            qkv = F.linear(_norm(x), self.qkv[layer]).unflatten(-1, (-1, size.head_dim))
            qk, v = qkv.split([size.heads + size.kv_heads, size.kv_heads], 1)
            left, right = qk.chunk(2, -1)
            qk = torch.cat((left * cos - right * sin, right * cos + left * sin), -1)
            mixed = attention.attend(layer, qk[:, : size.heads], qk[:, size.heads :], v)
            x = x + F.linear(mixed.flatten(1), self.out[layer])
            gate, up = F.linear(_norm(x), self.gate_up[layer]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, self.down[layer])
        if "last" in tensors:
            x = x[tensors["last"]]
        return {"logits": F.linear(_norm(x), self.embedding)}

    def conclude(self, computed: Mapping[str, Tensor], packed: Packed, step: Step) -> Outputs:
        assert step.sample is not None
        logits = computed["logits"].float()
        return {"token": step.sample(logits).tolist(), "logits": list(logits)}

    def forward(self, packed: Packed, step: Step) -> Outputs:
        assert step.attention is not None
        return self.conclude(self.compute(packed.tensors, step.attention), packed, step)

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False


def _norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:])
