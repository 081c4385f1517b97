"""Values on their way out of a worker: torch tensors become numpy arrays, emissions are weighed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mstar.tensors import Array, Output


def for_client(value: Output) -> Any:
    """The same tree with numpy arrays in place of tensors (bfloat16 as float32)."""
    match value:
        case torch.Tensor():
            tensor = value.detach()
            if tensor.dtype == torch.bfloat16:
                tensor = tensor.float()
            return tensor.cpu().numpy()
        case np.ndarray() | str() | bytes() | None:
            return value
        case Mapping():
            return {name: for_client(each) for name, each in value.items()}
        case Sequence():
            return [for_client(each) for each in value]
        case _:
            return value


def weigh(modality: str, value: Output) -> int:
    """Samples of an audio emission (its `pcm`, or the array itself), 1 of any other."""
    if modality != "audio":
        return 1
    sound = value.get("pcm") if isinstance(value, Mapping) else value
    return int(sound.shape[-1]) if isinstance(sound, Array) else 0
