"""Layers of V-JEPA 2: rotary positions in time and space, pre-norm transformer layers, the video encoder.

Rotary positions keep a quirk of the published weights: the dimensions of a head are rotated in adjacent pairs, but the
angles of a third are laid out as two copies one behind the other, so the two of a pair turn by different angles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from models.vjepa2.config import EPS, Clip, Transformer
from models.vjepa2.weights import Weights

THETA = 10_000.0


@dataclass(frozen=True, slots=True)
class Rotation:
    """Angles of tokens: cos, and sin signed for a pair (a, b) → (−b, a). Both [..., tokens, head_dim]."""

    cos: Tensor
    sin: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., tokens, heads, head_dim] → the same, rotated."""
        swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        rotated: Tensor = x * self.cos.unsqueeze(-2) + swapped * self.sin.unsqueeze(-2)
        return rotated.to(x.dtype)

    def to(self, device: torch.device) -> Rotation:
        """The same on a device."""
        return Rotation(self.cos.to(device), self.sin.to(device))

    def of(self, tokens: Tensor) -> Rotation:
        """Those of the tokens with these indices [..., n]."""
        return Rotation(self.cos[tokens], self.sin[tokens])


def rotation(head_dim: int, positions: Tensor) -> Rotation:
    """positions [tokens, 3]: frame, row, column → angles.

    A head is cut into three equal even parts, one for each of them; what is left over is not rotated. A token without a
    place (action, state) has its row and column at 0, which turns nothing.
    """
    part = 2 * (head_dim // 3 // 2)
    half = part // 2
    omega = THETA ** -(torch.arange(half, dtype=torch.float32, device=positions.device) / half)
    angles = (positions.float()[:, :, None] * omega).repeat(1, 1, 2).flatten(1)  # [tokens, 3 * part]
    angles = F.pad(angles, (0, head_dim - 3 * part))
    sin = angles.sin()
    sin[:, 0::2].neg_()
    return Rotation(angles.cos(), sin)


def places(clip: Clip, frames: int, first: int = 0, device: str = "cpu") -> Tensor:
    """[frames · patches, 3]: frame, row, column of every patch token, frames counted from `first`."""
    axes = (torch.arange(first, first + frames), torch.arange(clip.grid), torch.arange(clip.grid))
    return torch.cartesian_prod(*axes).to(device)


class Norm:
    """Layer norm in float32."""

    __slots__ = ("_bias", "_weight", "_width")

    def __init__(self, weights: Weights, name: str, width: int) -> None:
        self._width = (width,)
        self._weight = weights.take(f"{name}.weight", width)
        self._bias = weights.take(f"{name}.bias", width)

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self._width, self._weight, self._bias, EPS)


class Affine:
    """x [..., width] → [..., out] of the type that the weights say products have."""

    __slots__ = ("_bias", "_weight")

    def __init__(self, weights: Weights, name: str, out: int, width: int) -> None:
        self._weight = weights.take(f"{name}.weight", out, width).to(weights.dtype)
        self._bias = weights.take(f"{name}.bias", out).to(weights.dtype)

    @property
    def device(self) -> torch.device:
        return self._weight.device

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self._weight.dtype), self._weight, self._bias)


Mix = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q, k, v [..., tokens, heads, head_dim] → attended, same shape."""


class Layer:
    """x + attention(norm(x)), then + feed-forward(norm(·)) with the exact GELU."""

    __slots__ = ("_down", "_heads", "_norm1", "_norm2", "_out", "_qkv", "_up")

    def __init__(self, weights: Weights, prefix: str, sizes: Transformer) -> None:
        width, hidden = sizes.width, sizes.hidden
        self._heads = sizes.heads
        self._norm1 = Norm(weights, f"{prefix}.norm1", width)
        self._norm2 = Norm(weights, f"{prefix}.norm2", width)
        self._qkv = Affine(weights, f"{prefix}.attn.qkv", 3 * width, width)
        self._out = Affine(weights, f"{prefix}.attn.proj", width, width)
        self._up = Affine(weights, f"{prefix}.mlp.fc1", hidden, width)
        self._down = Affine(weights, f"{prefix}.mlp.fc2", width, hidden)

    def __call__(self, x: Tensor, rotate: Callable[[Tensor], Tensor], mix: Mix) -> Tensor:
        """x [..., tokens, width] float32 → the same."""
        qkv = self._qkv(self._norm1(x)).unflatten(-1, (3, self._heads, -1))
        q, k, v = qkv.unbind(-3)
        x = x + self._out(mix(rotate(q), rotate(k), v).flatten(-2))
        return x + self._down(F.gelu(self._up(self._norm2(x))))


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every token sees all: q, k, v [batch, tokens, heads, head_dim] → same shape as q."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


class Encoder:
    """Patches of tubelets through a vision transformer (V-JEPA 2, section 2.1)."""

    def __init__(self, weights: Weights, clip: Clip, sizes: Transformer, *, normalised: bool = False) -> None:
        """`normalised`: tokens are centred and scaled once more at the end, as V-JEPA 2-AC takes them."""
        self.clip = clip
        self.width = sizes.width
        self._sizes = sizes
        self._normalised = normalised
        kernel = (clip.tubelet, clip.patch, clip.patch)
        self._patch = weights.take("encoder.patch_embed.proj.weight", sizes.width, 3, *kernel).to(weights.dtype)
        self._patch_bias = weights.take("encoder.patch_embed.proj.bias", sizes.width).to(weights.dtype)
        self._layers = [Layer(weights, f"encoder.blocks.{n}", sizes) for n in range(sizes.depth)]
        self._norm = Norm(weights, "encoder.norm", sizes.width)

    @property
    def device(self) -> torch.device:
        return self._patch.device

    def __call__(self, pixels: Tensor) -> Tensor:
        """pixels [clips, frames, 3, size, size] → tokens [clips, frames / tubelet · patches, width] float32.

        Fewer frames than a tubelet are repeated to fill one; frames beyond the last whole tubelet are not seen.
        """
        if pixels.shape[1] < self.clip.tubelet:
            pixels = pixels.repeat(1, self.clip.tubelet, 1, 1, 1)
        video = pixels.to(self._patch.dtype).transpose(1, 2)  # [clips, 3, frames, size, size]
        patched = F.conv3d(video, self._patch, self._patch_bias, stride=self._patch.shape[2:])
        x = patched.flatten(2).transpose(1, 2).float()
        rotate = rotation(self._sizes.head_dim, places(self.clip, patched.shape[2], device=str(self.device)))
        for layer in self._layers:
            x = layer(x, rotate, attend)
        x = self._norm(x)
        return centred(x) if self._normalised else x


def centred(x: Tensor) -> Tensor:
    """Layer norm over the last dimension without weights, with torch's usual epsilon of 1e-5."""
    return F.layer_norm(x, x.shape[-1:])
