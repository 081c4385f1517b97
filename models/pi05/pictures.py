"""Pictures of any size as the policy sees them: scaled into a square, padded black, in [-1, 1]."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def square(picture: np.ndarray, side: int) -> np.ndarray:
    """[h, w, 3] uint8 or float32 in [-1, 1] → [side, side, 3] of the same type.

    Bilinear without antialiasing, whole numbers for uint8, aspect kept, centred on black (openpi's torch code).
    """
    height, width = picture.shape[:2]
    if (height, width) == (side, side):
        return picture
    ratio = max(width, height) / side
    inner = max(int(height / ratio), 1), max(int(width / ratio), 1)
    pixels = torch.tensor(picture).permute(2, 0, 1)[None]
    scaled = F.interpolate(pixels, size=inner, mode="bilinear", align_corners=False)
    black = 0.0
    if picture.dtype != np.uint8:
        scaled, black = scaled.clamp(-1, 1), -1.0
    top, left = (side - inner[0]) // 2, (side - inner[1]) // 2
    padding = (left, side - inner[1] - left, top, side - inner[0] - top)
    padded: np.ndarray = F.pad(scaled, padding, value=black)[0].permute(1, 2, 0).numpy()
    return padded


def seen(picture: np.ndarray, side: int) -> Tensor:
    """[h, w, 3] uint8 or float32 in [-1, 1] → [3, side, side] float32 in [-1, 1]."""
    fitted = torch.tensor(square(picture, side)).permute(2, 0, 1)
    return fitted.float() / 255 * 2 - 1 if picture.dtype == np.uint8 else fitted.float()
