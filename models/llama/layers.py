"""The layers of a Llama network as torch operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from models.blocks.linear import DENSE, DenseLinear, Kernel, Linear, RowLinear, stacked
from models.blocks.mlp import GatedMLP
from models.blocks.moe import MixtureOfExperts
from models.blocks.norm import RMSNorm
from models.blocks.quantise import dense
from models.blocks.rope import Rotation
from models.llama.config import LlamaConfig
from models.llama.weights import Weights
from mstar.submodule import Attention

FeedForward = Callable[[Tensor], Tensor]


class Stack(Protocol):
    """All layers and the final norm."""

    def __call__(self, hidden: Tensor, rotation: Rotation, attention: Attention, last: Tensor | None = None) -> Tensor:
        """hidden [tokens, hidden] float32, `last` [n] int64: the tokens wanted (all, if None) → [n or tokens, hidden]
        float32.
        """
        ...


class TorchStack:
    """One operator after the other; `layers` can be called alone."""

    __slots__ = ("_norm", "layers")

    def __init__(self, config: LlamaConfig, weights: Weights, kernel: Kernel) -> None:
        """Raises WeightsError for a tensor that is missing or of another shape."""
        self._norm = RMSNorm(dense(weights.take("model.norm.weight", (config.hidden,))), config.eps)
        self.layers = tuple(Layer(config, weights, index, kernel) for index in range(config.layers))

    def __call__(self, hidden: Tensor, rotation: Rotation, attention: Attention, last: Tensor | None = None) -> Tensor:
        for layer in self.layers[:-1]:
            hidden = layer(hidden, rotation, attention)
        return self._norm(self.layers[-1](hidden, rotation, attention, last))


class Layer:
    """hidden + attention(norm(hidden)), then + feed-forward(norm(·))."""

    __slots__ = (
        "_dtype",
        "_feed_forward",
        "_heads",
        "_index",
        "_input_norm",
        "_kv_heads",
        "_output",
        "_post_norm",
        "_qk_norm",
        "_qkv",
        "_scale",
        "_width",
    )

    def __init__(self, config: LlamaConfig, weights: Weights, index: int, kernel: Kernel) -> None:
        self._index = index
        self._heads = config.heads
        self._kv_heads = config.kv_heads
        self._width = config.head_dim
        self._scale = config.head_dim**-0.5
        self._dtype = DENSE.get(kernel, torch.float32)
        prefix = f"model.layers.{index}."

        def norm(name: str, size: int) -> RMSNorm:
            return RMSNorm(dense(weights.take(f"{prefix}{name}.weight", (size,))), config.eps)

        def linear(names: tuple[str, ...], outs: tuple[int, ...], width: int, bias: bool) -> Linear:
            return _linear(weights, [prefix + name for name in names], outs, width, bias, kernel)

        q, kv, hidden = config.heads * config.head_dim, config.kv_heads * config.head_dim, config.hidden
        attn = tuple(f"self_attn.{name}_proj" for name in "qkv")
        self._qkv = linear(attn, (q, kv, kv), hidden, config.qkv_bias)
        self._output = linear(("self_attn.o_proj",), (hidden,), q, config.output_bias)
        self._input_norm = norm("input_layernorm", hidden)
        self._post_norm = norm("post_attention_layernorm", hidden)
        self._qk_norm = (
            (norm("self_attn.q_norm", config.head_dim), norm("self_attn.k_norm", config.head_dim))
            if config.qk_norm
            else None
        )
        self._feed_forward: FeedForward = _feed_forward(config, weights, index, kernel)

    def __call__(self, hidden: Tensor, rotation: Rotation, attention: Attention, last: Tensor | None = None) -> Tensor:
        """hidden [tokens, hidden] float32 → the same after this layer; of the tokens `last` only, if given."""
        heads, kv_heads = self._heads, self._kv_heads
        qkv = self._qkv(self._input_norm(hidden)).float().unflatten(1, (-1, self._width))
        qk, v = qkv.split((heads + kv_heads, kv_heads), dim=1)
        if self._qk_norm is not None:
            q_norm, k_norm = self._qk_norm
            qk = torch.cat((q_norm(qk[:, :heads]), k_norm(qk[:, heads:])), dim=1)
        qk, v = rotation(qk).to(self._dtype), v.to(self._dtype)
        mixed = attention.attend(self._index, qk[:, :heads], qk[:, heads:], v, scale=self._scale)
        if last is not None:
            mixed, hidden = mixed[last], hidden[last]
        hidden = hidden + self._output(mixed.flatten(1))
        return hidden + self._feed_forward(self._post_norm(hidden))


def _linear(
    weights: Weights, names: list[str], outs: tuple[int, ...], width: int, bias: bool, kernel: Kernel
) -> Linear:
    """The named matrices [out, width] as one product with their outputs side by side."""
    matrices = [weights.take(f"{name}.weight", (out, width)) for name, out in zip(names, outs, strict=True)]
    biases = [dense(weights.take(f"{name}.bias", (out,))) for name, out in zip(names, outs, strict=True) if bias]
    return stacked(matrices, kernel, torch.cat(biases) if bias else None)


def _feed_forward(config: LlamaConfig, weights: Weights, index: int, kernel: Kernel) -> FeedForward:
    prefix = f"model.layers.{index}.mlp."
    moe = config.moe
    if moe is None or index in moe.dense_layers:
        return _gated(config, weights, prefix, config.inner, kernel)
    router = dense(weights.take(f"{prefix}gate.weight", (moe.experts, config.hidden)))
    experts = [_gated(config, weights, f"{prefix}experts.{e}.", moe.inner, kernel) for e in range(moe.experts)]
    pick = DenseLinear(router) if kernel in DENSE else RowLinear(router)
    return MixtureOfExperts(pick, experts, moe.top_k, moe.normalise)


def _gated(config: LlamaConfig, weights: Weights, prefix: str, inner: int, kernel: Kernel) -> GatedMLP:
    names = [f"{prefix}gate_proj", f"{prefix}up_proj"]
    gate_up = _linear(weights, names, (inner, inner), config.hidden, config.mlp_bias, kernel)
    down = _linear(weights, [f"{prefix}down_proj"], (config.hidden,), inner, config.mlp_bias, kernel)
    return GatedMLP(gate_up, down, inner)
