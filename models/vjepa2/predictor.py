"""The masked predictor of V-JEPA 2, and the attentive pooler of its video classifiers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from models.vjepa2.config import Transformer, VideoConfig
from models.vjepa2.network import Affine, Layer, Norm, attend, places, rotation
from models.vjepa2.weights import Weights

MASK_TOKEN = 1
"""Which of the learned mask tokens stands for what is to be predicted, as the published code has it."""


class MaskedPredictor:
    """Predicts the tokens at target places from those at context places."""

    def __init__(self, weights: Weights, config: VideoConfig) -> None:
        sizes, width = config.predictor, config.encoder.width
        self._clip = config.clip
        self._sizes = sizes
        self._embed = Affine(weights, "predictor.predictor_embed", sizes.width, width)
        masks = weights.take("predictor.mask_tokens", config.mask_tokens, sizes.width)
        self._mask = masks[MASK_TOKEN % config.mask_tokens]
        self._layers = [Layer(weights, f"predictor.predictor_blocks.{n}", sizes) for n in range(sizes.depth)]
        self._norm = Norm(weights, "predictor.predictor_norm", sizes.width)
        self._out = Affine(weights, "predictor.predictor_proj", width, sizes.width)

    @property
    def device(self) -> torch.device:
        return self._mask.device

    @torch.inference_mode()
    def __call__(self, tokens: Tensor, context: Tensor, target: Tensor) -> Tensor:
        """tokens [n, width] of a whole clip; context [c], target [t] int64: their places in it → [t, width]."""
        seen = self._embed(tokens[context]).float()
        x = torch.cat((seen, self._mask.expand(len(target), -1)))[None]
        steps = -(-len(tokens) // self._clip.patches)
        everywhere = rotation(self._sizes.head_dim, places(self._clip, steps, device=str(tokens.device)))
        rotate = everywhere.of(torch.cat((context, target)))
        for layer in self._layers:
            x = layer(x, rotate, attend)
        return self._out(self._norm(x[0, len(context) :]))


class Classifier:
    """Self-attention over a clip's tokens, one query that attends to them, a linear layer of classes."""

    def __init__(self, weights: Weights, config: VideoConfig) -> None:
        sizes = config.encoder
        self.labels = config.labels
        self._layers = [
            _PoolerLayer(weights, f"pooler.self_attention_layers.{n}", "self_attn", sizes)
            for n in range(config.pooler_layers)
        ]
        self._cross = _PoolerLayer(weights, "pooler.cross_attention_layer", "cross_attn", sizes)
        self._query = weights.take("pooler.query_tokens", 1, 1, sizes.width)
        self._classes = Affine(weights, "classifier", len(config.labels), sizes.width)

    @property
    def device(self) -> torch.device:
        return self._query.device

    @torch.inference_mode()
    def pool(self, tokens: Tensor) -> Tensor:
        """tokens [clips, n, width] → [clips, width]."""
        for layer in self._layers:
            tokens = layer(tokens, None)
        return self._cross(self._query.expand(len(tokens), -1, -1), tokens)[:, 0]

    @torch.inference_mode()
    def __call__(self, tokens: Tensor) -> Tensor:
        """tokens [clips, n, width] → logits [clips, classes]."""
        return self._classes(self.pool(tokens))


class _PoolerLayer:
    """A layer without positions; the crossing one has no projection behind its attention, no norm of its queries."""

    __slots__ = ("_down", "_heads", "_k", "_norm1", "_norm2", "_out", "_q", "_up", "_v")

    def __init__(self, weights: Weights, prefix: str, attention: str, sizes: Transformer) -> None:
        width = sizes.width
        self._heads = sizes.heads
        self._norm1 = Norm(weights, f"{prefix}.layer_norm1", width)
        self._norm2 = Norm(weights, f"{prefix}.layer_norm2", width)
        self._q, self._k, self._v = (
            Affine(weights, f"{prefix}.{attention}.{name}_proj", width, width) for name in ("q", "k", "v")
        )
        crossing = attention == "cross_attn"
        self._out = None if crossing else Affine(weights, f"{prefix}.{attention}.out_proj", width, width)
        self._up = Affine(weights, f"{prefix}.mlp.fc1", sizes.hidden, width)
        self._down = Affine(weights, f"{prefix}.mlp.fc2", width, sizes.hidden)

    def __call__(self, x: Tensor, context: Tensor | None) -> Tensor:
        """x [clips, n, width], over the context if there is one, else over itself → the same shape as x."""
        normed = self._norm1(x if context is None else context)
        q = self._q(normed if context is None else x)
        q, k, v = (part.unflatten(-1, (self._heads, -1)) for part in (q, self._k(normed), self._v(normed)))
        mixed = attend(q, k, v).flatten(-2)
        x = x + (mixed if self._out is None else self._out(mixed))
        return x + self._down(F.gelu(self._up(self._norm2(x))))
