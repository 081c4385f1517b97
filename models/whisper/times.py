"""When each token of a transcript was said: out of the decoder's attention over the encoder's states.

A transcript that is known is read in one pass of the decoder. Some heads of the cross-attention look at the frame in
which a token is said (checkpoints name them); the cheapest monotone path through their mean (dynamic time warping)
gives every token its frames. Radford et al. 2022 and their published code, where words are timed the same way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from models.whisper.config import WhisperConfig
from models.whisper.network import Whisper
from mstar.errors import WeightsError
from mstar.submodule import Row

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Heads = Sequence[tuple[int, int]]
"""(layer, head) of the cross-attention that follow the sound."""

SMOOTH = 7
"""Frames of the median filter over a token's attention."""


def alignment_heads(folder: Path, config: WhisperConfig) -> tuple[tuple[int, int], ...]:
    """(layer, head) that a checkpoint's own files name; else all heads of the upper half of the layers.

    Raises WeightsError for heads that the network does not have.
    """
    layers, heads = config.decoder_layers, config.decoder_attention_heads
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        try:
            named = json.loads(path.read_text(encoding="utf-8")).get("alignment_heads") if path.exists() else None
            if named:
                found = tuple((int(layer), int(head)) for layer, head in named)
                if all(0 <= layer < layers and 0 <= head < heads for layer, head in found):
                    return found
                raise ValueError(f"alignment_heads {named} of {layers} layers with {heads} heads")
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise WeightsError(f"{path}: {error}") from error
    return tuple((layer, head) for layer in range(layers // 2, layers) for head in range(heads))


class OneText:
    """`Attention` over one text that is read at once, which notes the cross-attention of `heads`."""

    def __init__(self, tokens: int, heads: Heads, device: torch.device) -> None:
        self.rows = (Row(call=0, tokens=tokens),)
        self.positions = torch.arange(tokens, device=device)
        self.noted: list[Tensor] = []
        """Softmax over frames, [tokens, frames] each, in order of `heads` within a layer."""
        self._heads = heads
        self._cross: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:  # noqa: ARG002
        """q, k, v [tokens, heads, dim] → [tokens, heads, dim]."""
        q, k, v = (each.transpose(0, 1)[None] for each in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)[0].transpose(0, 1)

    def write_cross(self, layer: int, row: int, k: Tensor, v: Tensor) -> None:  # noqa: ARG002 - there is one row
        self._cross[layer] = (k, v)

    def attend_cross(self, layer: int, q: Tensor, *, scale: float | None = None) -> Tensor:
        """q [tokens, heads, dim] over the frames → [tokens, heads, dim]."""
        k, v = self._cross[layer]
        share = (torch.einsum("thd,fhd->htf", q, k) * (scale or q.shape[-1] ** -0.5)).softmax(-1)
        self.noted += [share[head] for at, head in self._heads if at == layer]
        return torch.einsum("htf,fhd->thd", share, v)


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as the decoder reads it: `hidden` [tokens, d_model], `looked` [heads, tokens, frames]."""

    hidden: Tensor
    looked: Tensor


@torch.inference_mode()
def read(network: Whisper, states: Tensor, ids: Sequence[int], heads: Heads) -> Reading:
    """Read `ids` over states [frames, d_model]."""
    attention = OneText(len(ids), heads, network.device)
    network.write_cross([states], [0], attention)
    hidden = network.decode(torch.tensor(ids, device=network.device), attention)
    return Reading(hidden, torch.stack(attention.noted))


def frames_of(looked: Tensor, frames: int) -> Ints:
    """looked [heads, tokens, any number of frames] → first frame of each token, and the end [tokens + 1], of `frames`.

    Never falling; the first token begins at 0, the last ends at `frames`. A row is that of the position from which its
    token is foretold: the position that holds the token looks some 0.25 s behind it (measured on tiny.en).
    """
    share = looked[:, :, :frames].float()
    deviation, mean = torch.std_mean(share, dim=1, keepdim=True, correction=0)
    share = median((share - mean) / (deviation + 1e-6), SMOOTH)
    return warp(-share.mean(0).cpu().numpy())


def median(values: Tensor, width: int) -> Tensor:
    """Median over `width` neighbours of the last dimension, mirrored at its ends; shorter ones are left as they are."""
    half = width // 2
    if values.shape[-1] <= half:
        return values
    padded = F.pad(values, (half, half), mode="reflect")
    return padded.unfold(-1, width, 1).median(-1).values


def warp(cost: NDArray[np.floating]) -> Ints:
    """Cheapest monotone path through cost [rows, columns] → first column of each row, and `columns` [rows + 1].

    A step goes one down, one right, or both (Sakoe and Chiba 1978).
    """
    rows, columns = cost.shape
    best = np.empty((rows, columns))
    best[0] = np.cumsum(cost[0])
    for row in range(1, rows):
        above = best[row - 1]
        entry = np.minimum(above, np.concatenate(([np.inf], above[:-1])))  # from above, or above and left
        sums = np.cumsum(cost[row])
        best[row] = sums + np.minimum.accumulate(entry - np.concatenate(([0.0], sums[:-1])))
    first = np.zeros(rows + 1, np.int64)
    first[rows] = columns
    row, column = rows - 1, columns - 1
    while row > 0:
        left = best[row, column - 1] if column else np.inf
        up = best[row - 1, column]
        both = best[row - 1, column - 1] if column else np.inf
        if left <= min(up, both) and column:
            column -= 1
            continue
        first[row] = column
        row, column = row - 1, column - int(both <= up)
    return first
