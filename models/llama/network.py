"""The Llama network over packed rows: no per-request state, attention and cache behind `Attention`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast, get_args

import torch
from torch import Tensor

from models.blocks.linear import DENSE, DenseLinear, Kernel
from models.blocks.quantise import dense, rows
from models.blocks.rope import Rotation, inverse_frequencies
from models.llama.config import LlamaConfig
from models.llama.fused import FusedStack, can_fuse
from models.llama.head import refined_head
from models.llama.layers import Stack, TorchStack
from models.llama.weights import MovedWeights, Weights
from mstar.errors import WeightsError
from mstar.submodule import Attention
from mstar.tensors import Value


class Llama:
    """Llama, Qwen2, Qwen3 and Qwen3-MoE.

    `kernel="float32"` computes as the published code does; `"bfloat16"` has products and attention in that type, norms
    and sums of layers in float32. Both run on any device. `"int4"`, on a CPU, holds the matrices in 4 bits (a quantised
    GGUF's own codes, or the nearest ones), lm_head in 8; a row's result then does not depend on the other rows.
    `fused`: in 4 bits, everything between two attentions is one graph of onnxruntime where its products fit.

    `dtype`: of queries, keys and values. `capturable`: whether `forward` and `logits` leave the device alone.
    """

    def __init__(
        self,
        config: LlamaConfig,
        weights: Weights,
        kernel: Kernel = "int4",
        *,
        fused: bool = True,
        device: str = "cpu",
    ) -> None:
        """Raises WeightsError for a tensor that is missing or of another shape."""
        self.config = config
        self.kernel = kernel
        self.device = torch.device(device)
        self.dtype = DENSE.get(kernel, torch.float32)
        self.capturable = kernel in DENSE and config.moe is None
        if self.device.type != "cpu":
            weights = MovedWeights(weights, self.device)
        fused = fused and kernel == "int4" and can_fuse(config)
        shape = (config.vocab, config.hidden)
        self._embedding = weights.take("model.embed_tokens.weight", shape)
        head = self._embedding if config.tied else weights.take("lm_head.weight", shape)
        self._head: Callable[[Tensor], Tensor] = (
            DenseLinear(dense(head, self.dtype), dtype=self.dtype)
            if kernel in DENSE
            else refined_head(head, fused=fused)
        )
        self._frequencies = inverse_frequencies(config.rope).to(self.device)  # [head_dim / 2]
        if "rope_freqs.weight" in weights:
            self._frequencies = self._frequencies / dense(weights.take("rope_freqs.weight", (config.head_dim // 2,)))
        self.stack: Stack = FusedStack(config, weights) if fused else TorchStack(config, weights, kernel)

    def embed(self, ids: Tensor) -> Tensor:
        """ids [tokens] int64 → [tokens, hidden] float32."""
        return rows(self._embedding, ids)

    @torch.inference_mode()
    def forward(self, x: Tensor, positions: Tensor, attention: Attention, last: Tensor | None = None) -> Tensor:
        """One packed step.

        x: ids [tokens] int64, or embeddings [tokens, hidden]; positions [tokens] int64; `last` [n] int64: the tokens
        wanted (all, if None) → hidden states after the final norm, [n or tokens, hidden] float32.
        """
        hidden = x.float() if x.is_floating_point() else self.embed(x)
        return self.stack(hidden, Rotation(positions, self._frequencies), attention, last)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [n, hidden] → [n, vocab] float32."""
        return self._head(hidden).float()


def kernel_of(settings: Mapping[str, Value]) -> tuple[Kernel, str]:
    """Kernel and device of a language model: the settings `llm_kernel` and `device`. Raises WeightsError.

    Where no kernel is given it is "int4" on a CPU and "bfloat16" elsewhere.
    """
    device = str(settings.get("device", "cpu"))
    on_cpu = torch.device(device).type == "cpu"
    kernel = settings.get("llm_kernel", "int4" if on_cpu else "bfloat16")
    known = get_args(Kernel) if on_cpu else tuple(DENSE)
    if kernel not in known:
        raise WeightsError(f"llm_kernel {kernel!r} is not supported on {device} ({', '.join(known)})")
    return cast("Kernel", kernel), device
