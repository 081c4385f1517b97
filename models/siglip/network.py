"""SigLIP's picture encoder: pictures in, one hidden state a patch out; no pooling head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from models.blocks.linear import DenseLinear
from models.blocks.tensors import Tensors
from models.siglip.config import SiglipConfig


class Siglip:
    """Names as in the public layout, from `embeddings.patch_embedding.weight` to `post_layernorm.bias`.

    `dtype`: of the layers' products and attention; patches, norms and what layers add to are float32.
    """

    def __init__(self, config: SiglipConfig, weights: Tensors, dtype: torch.dtype = torch.float32) -> None:
        """Raises WeightsError for a tensor that is missing or of another shape."""
        self.config = config
        patch = (config.hidden, 3, config.patch, config.patch)
        self._patch = weights.take("embeddings.patch_embedding.weight", patch).float()
        self._patch_bias = weights.take("embeddings.patch_embedding.bias", (config.hidden,)).float()
        self._positions = weights.take("embeddings.position_embedding.weight", (config.tokens, config.hidden)).float()
        self._layers = tuple(_Layer(config, weights, f"encoder.layers.{i}.", dtype) for i in range(config.layers))
        self._post = _Norm(weights, "post_layernorm", config)

    @property
    def device(self) -> torch.device:
        return self._patch.device

    def __call__(self, pictures: Tensor) -> Tensor:
        """pictures [n, 3, image, image] float32 in [-1, 1] → [n, tokens, hidden] float32."""
        patches = F.conv2d(pictures, self._patch, self._patch_bias, stride=self.config.patch)
        hidden = patches.flatten(2).transpose(1, 2) + self._positions  # [n, tokens, hidden]
        for layer in self._layers:
            hidden = layer(hidden)
        return self._post(hidden)


class _Norm:
    __slots__ = ("_bias", "_eps", "_weight")

    def __init__(self, weights: Tensors, name: str, config: SiglipConfig) -> None:
        self._weight = weights.take(f"{name}.weight", (config.hidden,)).float()
        self._bias = weights.take(f"{name}.bias", (config.hidden,)).float()
        self._eps = config.eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self._weight.shape, self._weight, self._bias, self._eps)


class _Layer:
    """hidden + attention(norm(hidden)), then + MLP(norm(·)); every patch sees all patches of its picture."""

    __slots__ = ("_down", "_heads", "_norm1", "_norm2", "_output", "_qkv", "_up")

    def __init__(self, config: SiglipConfig, weights: Tensors, prefix: str, dtype: torch.dtype) -> None:
        self._heads = config.heads
        self._norm1 = _Norm(weights, f"{prefix}layer_norm1", config)
        self._norm2 = _Norm(weights, f"{prefix}layer_norm2", config)

        def linear(names: tuple[str, ...], out: int, width: int) -> DenseLinear:
            matrices = [weights.take(f"{prefix}{name}.weight", (out, width)) for name in names]
            biases = [weights.take(f"{prefix}{name}.bias", (out,)) for name in names]
            return DenseLinear(torch.cat(matrices), torch.cat(biases), dtype)

        self._qkv = linear(tuple(f"self_attn.{name}_proj" for name in "qkv"), config.hidden, config.hidden)
        self._output = linear(("self_attn.out_proj",), config.hidden, config.hidden)
        self._up = linear(("mlp.fc1",), config.inner, config.hidden)
        self._down = linear(("mlp.fc2",), config.hidden, config.inner)

    def __call__(self, hidden: Tensor) -> Tensor:
        """[n, tokens, hidden] → the same after this layer."""
        qkv = self._qkv(self._norm1(hidden)).unflatten(-1, (3, self._heads, -1))  # [n, tokens, 3, heads, dim]
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each [n, heads, tokens, dim]
        mixed = F.scaled_dot_product_attention(q, k, v)
        hidden = hidden + self._output(mixed.transpose(1, 2).flatten(2))
        return hidden + self._down(F.gelu(self._up(self._norm2(hidden)), approximate="tanh"))
