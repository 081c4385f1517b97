"""A π0.5 checkpoint's tensors under the names of its public layout."""

from __future__ import annotations

from pathlib import Path

from models.blocks.tensors import Tensors, Under
from models.llama.weights import HubWeights

PALIGEMMA = "paligemma_with_expert.paligemma."
EXPERT = "paligemma_with_expert.gemma_expert.model."


def read_weights(folder: Path) -> Tensors:
    """`model.safetensors` or its shards; the names may all begin with `model.`. Raises WeightsError."""
    found = HubWeights(folder)
    return Under(found, "model.") if "model.action_in_proj.weight" in found else found
