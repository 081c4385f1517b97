"""The float type that a family's networks compute in, from its settings."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from mstar.errors import WeightsError
from mstar.tensors import Value

TYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def precision(settings: Mapping[str, Value]) -> torch.dtype:
    """The setting `dtype`; float32 on a CPU and bfloat16 on another `device`, where it is not there.

    It is that of products and attention, hence of K/V; norms and what layers add to are float32. Raises WeightsError.
    """
    given = settings.get("dtype")
    if given is None:
        return TYPES["float32" if device_of(settings) == "cpu" else "bfloat16"]
    if not isinstance(given, str) or given not in TYPES:
        raise WeightsError(f"dtype {given!r} is not supported ({', '.join(TYPES)})")
    return TYPES[given]


def device_of(settings: Mapping[str, Value]) -> str:
    """The rank's device, the setting `device`: that of the host where there is none."""
    device = settings.get("device")
    return device if isinstance(device, str) else "cpu"
