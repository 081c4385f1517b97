"""The Llama network over packed rows: no per-request state, attention and cache behind `Attention`."""

from __future__ import annotations

import torch
from torch import Tensor

from models.blocks.linear import DenseLinear, Kernel
from models.blocks.quantise import dense, rows
from models.blocks.rope import Rotation, inverse_frequencies
from models.llama.config import LlamaConfig
from models.llama.fused import FusedStack, can_fuse
from models.llama.head import refined_head
from models.llama.layers import Stack, TorchStack
from models.llama.weights import Weights
from mstar.submodule import Attention


class Llama:
    """Llama, Qwen2, Qwen3 and Qwen3-MoE.

    `kernel="float32"` computes as the published code does. `kernel="int4"` holds the matrices in 4 bits (a quantised
    GGUF's own codes, or the nearest ones), lm_head in 8; a row's result then does not depend on the other rows.
    `fused`: in 4 bits, everything between two attentions is one graph of onnxruntime where its products fit.
    """

    def __init__(self, config: LlamaConfig, weights: Weights, kernel: Kernel = "int4", *, fused: bool = True) -> None:
        """Raises WeightsError for a tensor that is missing or of another shape."""
        self.config = config
        self.kernel = kernel
        fused = fused and kernel == "int4" and can_fuse(config)
        shape = (config.vocab, config.hidden)
        self._embedding = weights.take("model.embed_tokens.weight", shape)
        head = self._embedding if config.tied else weights.take("lm_head.weight", shape)
        self._head = DenseLinear(dense(head)) if kernel == "float32" else refined_head(head, fused=fused)
        self._frequencies = inverse_frequencies(config.rope)  # [head_dim / 2]
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
        return self._head(hidden)
