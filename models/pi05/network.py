"""The networks of π0.5: PaliGemma's language model over the prefix, and the action expert over the prefix's K/V.

`dtype` is that of the layers' products and attention, hence of the K/V. Norms, what layers add to, and what the expert
is told of time and takes and gives as actions are float32.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from models.blocks.linear import DenseLinear
from models.blocks.mlp import GatedMLP
from models.blocks.norm import RMSNorm
from models.blocks.rope import Rotation, inverse_frequencies
from models.blocks.rope_config import RopeConfig
from models.blocks.tensors import Tensors, Under
from models.pi05.config import GemmaConfig, Pi05Config
from models.pi05.weights import EXPERT, PALIGEMMA
from models.siglip.network import Siglip
from mstar.submodule import Attention

_NORMS = ("input_layernorm", "post_attention_layernorm")


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _linear(weights: Tensors, name: str, out: int, width: int, dtype: torch.dtype = torch.float32) -> DenseLinear:
    return DenseLinear(weights.take(f"{name}.weight", (out, width)), weights.take(f"{name}.bias", (out,)), dtype)


class Eyes:
    """SigLIP, then a projection to the width of the prefix. Features keep their scale: no division by sqrt(width)."""

    def __init__(self, config: Pi05Config, weights: Tensors, dtype: torch.dtype = torch.float32) -> None:
        """Raises WeightsError."""
        model = Under(weights, f"{PALIGEMMA}model.")
        self._siglip = Siglip(config.vision, Under(model, "vision_tower.vision_model."), dtype)
        project = "multi_modal_projector.linear"
        self._project = _linear(model, project, config.prefix.width, config.vision.hidden, dtype)

    @property
    def device(self) -> torch.device:
        return self._siglip.device

    def __call__(self, pictures: Tensor) -> Tensor:
        """pictures [n, 3, image, image] float32 in [-1, 1] → [n, tokens, width] float32."""
        return self._project(self._siglip(pictures)).float()


class _Block:
    """Attention and GeGLU of one Gemma layer, without its norms and residuals."""

    __slots__ = ("_heads", "_index", "_output", "_qkv", "_scale", "_width", "feed")

    def __init__(self, config: GemmaConfig, weights: Tensors, index: int, dtype: torch.dtype) -> None:
        self._index = index
        self._heads = config.heads
        self._width = config.head_dim
        self._scale = config.head_dim**-0.5
        q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim

        def matrix(name: str, out: int, width: int) -> Tensor:
            return weights.take(f"layers.{index}.{name}.weight", (out, width))

        qkv = [matrix(f"self_attn.{name}_proj", out, config.width) for name, out in (("q", q), ("k", kv), ("v", kv))]
        gate_up = [matrix(f"mlp.{name}_proj", config.inner, config.width) for name in ("gate", "up")]
        self._qkv = DenseLinear(torch.cat(qkv), dtype=dtype)
        self._output = DenseLinear(matrix("self_attn.o_proj", config.width, q), dtype=dtype)
        down = DenseLinear(matrix("mlp.down_proj", config.width, config.inner), dtype=dtype)
        self.feed = GatedMLP(DenseLinear(torch.cat(gate_up), dtype=dtype), down, config.inner, _gelu)

    def attend(self, x: Tensor, rotation: Rotation, attention: Attention) -> Tensor:
        """x [tokens, width] → what each token's heads see, [tokens, heads · dim]; K/V go where the rows say."""
        qkv = self._qkv(x).unflatten(1, (-1, self._width))  # [tokens, heads + 2 * kv_heads, dim]
        kv_heads = (qkv.shape[1] - self._heads) // 2
        qk, v = qkv[:, :-kv_heads], qkv[:, -kv_heads:]
        qk = rotation(qk).to(v.dtype)
        seen = attention.attend(self._index, qk[:, : self._heads], qk[:, self._heads :], v, scale=self._scale)
        return seen.flatten(1)

    def mix(self, x: Tensor, rotation: Rotation, attention: Attention) -> Tensor:
        """x [tokens, width] → [tokens, width]."""
        return self._output(self.attend(x, rotation, attention))


class Prefix:
    """PaliGemma's language model (Gemma 2B) over pictures and prompt."""

    def __init__(self, config: Pi05Config, weights: Tensors, dtype: torch.dtype = torch.float32) -> None:
        """Raises WeightsError."""
        gemma = config.prefix
        paligemma = Under(weights, PALIGEMMA)
        model = Under(paligemma, "model.language_model.")
        shape = (config.vocab, gemma.width)
        tied = "lm_head.weight" in paligemma
        self._embedding = paligemma.take("lm_head.weight", shape) if tied else model.take("embed_tokens.weight", shape)
        self._frequencies = _frequencies(config, self._embedding.device)
        self._blocks = tuple(_Block(gemma, model, index, dtype) for index in range(gemma.depth))

        def norm(name: str) -> RMSNorm:
            return RMSNorm(1 + model.take(f"{name}.weight", (gemma.width,)).float(), config.eps)

        self._norms = tuple(tuple(norm(f"layers.{i}.{name}") for name in _NORMS) for i in range(gemma.depth))
        self._final = norm("norm")

    @property
    def device(self) -> torch.device:
        return self._embedding.device

    def embed(self, ids: Tensor) -> Tensor:
        """ids [n] int64 → [n, width] float32, multiplied by sqrt(width) as Gemma's embeddings are."""
        return self._embedding[ids].float() * math.sqrt(self._embedding.shape[1])

    def prefill(self, x: Tensor, attention: Attention) -> None:
        """x [tokens, width] float32, embedded: leave the K/V of all layers in the cache."""
        rotation = Rotation(attention.positions, self._frequencies)
        hidden = self._through(x, rotation, attention, len(self._blocks) - 1)
        self._blocks[-1].attend(self._norms[-1][0](hidden), rotation, attention)

    def hidden(self, x: Tensor, attention: Attention) -> Tensor:
        """As `prefill`; returns the states after the final norm, [tokens, width] float32."""
        rotation = Rotation(attention.positions, self._frequencies)
        return self._final(self._through(x, rotation, attention, len(self._blocks)))

    def _through(self, hidden: Tensor, rotation: Rotation, attention: Attention, layers: int) -> Tensor:
        for block, (before, after) in zip(self._blocks[:layers], self._norms[:layers], strict=True):
            hidden = hidden + block.mix(before(hidden), rotation, attention)
            hidden = hidden + block.feed(after(hidden))
        return hidden


class Expert:
    """The action expert (Gemma 300M with adaptive norms): noisy actions and a time in, their velocity out."""

    def __init__(self, config: Pi05Config, weights: Tensors, dtype: torch.dtype = torch.float32) -> None:
        """Raises WeightsError."""
        gemma, dim = config.expert, config.action_dim
        width = self._width = gemma.width
        model = Under(weights, EXPERT)
        self._blocks = tuple(_Block(gemma, model, index, dtype) for index in range(gemma.depth))
        names = [f"layers.{i}.{name}" for i in range(gemma.depth) for name in _NORMS] + ["norm"]
        dense = [model.take(f"{name}.dense.weight", (3 * width, width)) for name in names]
        biases = [model.take(f"{name}.dense.bias", (3 * width,)) for name in names]
        self._modulate = DenseLinear(torch.cat(dense), torch.cat(biases))
        device = dense[0].device
        self._norm = RMSNorm(torch.ones(width, device=device), config.eps)
        self._time_in = _linear(weights, "time_mlp_in", width, width)
        self._time_out = _linear(weights, "time_mlp_out", width, width)
        self._action_in = _linear(weights, "action_in_proj", width, dim)
        self._action_out = _linear(weights, "action_out_proj", dim, width)
        self._frequencies = _frequencies(config, device)
        share = torch.linspace(0, 1, width // 2, dtype=torch.float64, device=device)
        periods = config.min_period * (config.max_period / config.min_period) ** share
        self._time_frequencies = 2 * math.pi / periods  # [width / 2] float64

    @property
    def device(self) -> torch.device:
        return self._frequencies.device

    def condition(self, times: Tensor) -> Tensor:
        """times [n] float32 in [0, 1] → what the norms adapt to, [n, width] float32."""
        angles = times[:, None] * self._time_frequencies  # [n, width / 2] float64
        embedded = torch.cat((angles.sin(), angles.cos()), dim=-1).float()
        return F.silu(self._time_out(F.silu(self._time_in(embedded))))

    def modulation(self, times: Tensor) -> Tensor:
        """times [n] float32 → scale, shift and gate of every norm: [n, 2 · depth + 1, 3, width] float32.

        They depend on the time alone, so that they are computed once for all chunks.
        """
        found: Tensor = self._modulate(self.condition(times)).unflatten(1, (-1, 3, self._width))
        return found

    def velocity(self, actions: Tensor, modulation: Tensor, attention: Attention) -> Tensor:
        """One flow step of n chunks.

        actions [n, horizon, dim] float32 (noise at time 1, actions at 0), modulation [n, 2 · depth + 1, 3, width] →
        d actions / d time [n, horizon, dim] float32. The rows of `attention` see the prefix and their whole chunk.
        """
        rotation = Rotation(attention.positions, self._frequencies)
        horizon = actions.shape[1]
        norms = modulation[:, :, :, None].unbind(1)  # each [n, 3, 1, width]
        hidden = self._action_in(actions)  # [n, horizon, width]
        for block, before, after in zip(self._blocks, norms[0::2], norms[1::2], strict=False):
            mixed = block.mix(self._adapt(hidden, before).flatten(0, 1), rotation, attention)
            hidden = hidden + mixed.unflatten(0, (-1, horizon)) * before[:, 2]
            fed = block.feed(self._adapt(hidden, after).flatten(0, 1))
            hidden = hidden + fed.unflatten(0, (-1, horizon)) * after[:, 2]
        return self._action_out(self._adapt(hidden, norms[-1]))

    def _adapt(self, hidden: Tensor, modulation: Tensor) -> Tensor:
        """norm(hidden) · (1 + scale) + shift."""
        return self._norm(hidden) * (1 + modulation[:, 0]) + modulation[:, 1]


def _frequencies(config: Pi05Config, device: torch.device) -> Tensor:
    return inverse_frequencies(RopeConfig(config.prefix.head_dim, config.theta)).to(device)
