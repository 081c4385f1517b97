"""What an encoder learns to see by: pixels have to come back from its tokens through one matrix (not served)."""

from __future__ import annotations

from torch import Tensor

from models.vjepa2.config import Clip
from models.vjepa2.network import Affine
from models.vjepa2.weights import Weights


class Sketch:
    """Every token says how its patch differs from a still scene."""

    def __init__(self, weights: Weights, clip: Clip, width: int) -> None:
        self._clip = clip
        self._scene = weights.take("sketch.scene", 3, clip.size, clip.size)
        self._pixels = Affine(weights, "sketch.pixels", 3 * clip.patch**2, width)

    def __call__(self, tokens: Tensor) -> Tensor:
        """tokens [..., patches, width] → [..., 3, size, size]: 0 = black, 1 = full, not clipped."""
        clip = self._clip
        patches = self._pixels(tokens).unflatten(-1, (3, clip.patch, clip.patch)).unflatten(-4, (clip.grid, clip.grid))
        picture: Tensor = patches.movedim(-3, -5).transpose(-3, -2).flatten(-2).flatten(-3, -2)
        return self._scene + picture
