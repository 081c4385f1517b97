"""From camera pictures to what the encoders take (cut, resized, normalised), and from tokens back to pictures."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from models.vjepa2.config import Clip
from models.vjepa2.network import Affine
from models.vjepa2.weights import Weights
from mstar.errors import Rejected
from mstar.tensors import Value

MEAN = torch.tensor((0.485, 0.456, 0.406)).view(3, 1, 1)
STD = torch.tensor((0.229, 0.224, 0.225)).view(3, 1, 1)
"""Of ImageNet, per colour."""

Cut = Literal["square", "centre"]
"""`square`: the largest square in the middle, resized (V-JEPA 2-AC). `centre`: the shorter side resized to 8/7 of the
size, the middle of that (V-JEPA 2)."""


def pictures(name: str, value: Value) -> Tensor:
    """The frames [n, height, width, 3] uint8 of an input, or one frame without n. Raises Rejected naming the input."""
    array = value if isinstance(value, np.ndarray) else None
    if array is None or array.dtype != np.uint8 or array.ndim not in {3, 4} or array.shape[-1] != 3 or not array.size:
        what = f"{array.dtype} {list(array.shape)}" if array is not None else type(value).__name__
        raise Rejected(f"{name}: expected uint8 [frames, height, width, 3], got {what}", param=name)
    frames = array if array.ndim == 4 else array[None]
    return torch.from_numpy(frames if frames.flags.writeable else frames.copy())


def normalised(frames: Tensor, size: int, cut: Cut) -> Tensor:
    """frames [n, height, width, 3] uint8 → [n, 3, size, size] float32."""
    channels = frames.permute(0, 3, 1, 2)
    fitted = _square(channels, size) if cut == "square" else _centre(channels, size)
    return ((fitted.float() / 255 - MEAN) / STD).contiguous()  # as it is when it has travelled


def _square(x: Tensor, size: int) -> Tensor:
    height, width = x.shape[-2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    x = x[..., top : top + side, left : left + side]
    return x if side == size else F.interpolate(x.float(), size=(size, size), mode="bilinear", align_corners=False)


def _centre(x: Tensor, size: int) -> Tensor:
    height, width = x.shape[-2:]
    short = int(size * 256 / 224)
    shape = (short, int(short * width / height)) if height <= width else (int(short * height / width), short)
    x = F.interpolate(x, size=shape, mode="bilinear", antialias=True, align_corners=False)
    top, left = round((shape[0] - size) / 2), round((shape[1] - size) / 2)
    return x[..., top : top + size, left : left + size]


PAINTING = 64
"""Width of the network that paints."""


class PixelDecoder:
    """Pictures of tokens: all of them together say where the robot is; what a pixel shows then, a small network says.

    Its first layer is given the pixel's place, the robot's, and their products, of which distances and directions are
    made. It gives a colour, and how much of it lies over a still scene.

    No part of V-JEPA 2-AC, which predicts no pixels; trained beside a small world to show what it imagines.
    """

    def __init__(self, weights: Weights, clip: Clip, width: int, numbers: int) -> None:
        """`numbers`: of the robot's place."""
        self._scene = weights.take("decoder.scene", clip.size, clip.size, 3)
        self._where = Affine(weights, "decoder.where", numbers, clip.patches * width)
        self._first = Affine(weights, "decoder.first", PAINTING, 2 + 3 * numbers)
        self._second = Affine(weights, "decoder.second", PAINTING, PAINTING)
        self._shown = Affine(weights, "decoder.shown", 4, PAINTING)
        across = (torch.arange(clip.size, device=self._scene.device) + 0.5) / clip.size * 2 - 1
        self._pixels = torch.cartesian_prod(across, across).unflatten(0, (clip.size, clip.size))  # [rows, columns, 2]

    def __call__(self, tokens: Tensor) -> Tensor:
        """tokens [..., patches, width] → [..., 3, size, size]: from 0 = black to 1 = full."""
        return self.painted(self.where(tokens)[..., None, None, :], self._pixels, self._scene).movedim(-1, -3)

    def where(self, tokens: Tensor) -> Tensor:
        """tokens [..., patches, width] → the robot's place [..., numbers]."""
        return self._where(tokens.flatten(-2))

    def at(self, place: Tensor, pixels: Tensor) -> Tensor:
        """What is seen of a robot at these places [n, numbers] in these pixels [m], counted along rows → [n, m, 3]."""
        return self.painted(place[:, None], self._pixels.flatten(0, 1)[pixels], self._scene.flatten(0, 1)[pixels])

    def painted(self, place: Tensor, pixels: Tensor, scene: Tensor) -> Tensor:
        """place [..., numbers], pixels [..., 2] and what they show without a robot [..., 3] → [..., 3]."""
        shape = torch.broadcast_shapes(place.shape[:-1], pixels.shape[:-1])
        place, pixels = place.expand(*shape, -1), pixels.expand(*shape, -1)
        products = (place[..., None] * pixels[..., None, :]).flatten(-2)
        x = F.silu(self._second(F.silu(self._first(torch.cat((pixels, place, products), dim=-1)))))
        cover, colour = self._shown(x).sigmoid().split((1, 3), dim=-1)
        painted: Tensor = scene * (1 - cover) + colour * cover
        return painted


def picture_of(pixels: Tensor) -> NDArray[np.uint8]:
    """[3, size, size] → [size, size, 3] uint8."""
    levels = (pixels.detach().clamp(0, 1) * 255).round().to(torch.uint8)
    found: NDArray[np.uint8] = levels.permute(1, 2, 0).cpu().numpy()
    return found
