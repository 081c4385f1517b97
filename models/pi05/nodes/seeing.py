"""The picture encoder's node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from models.blocks.precision import precision
from models.pi05.network import Eyes
from models.pi05.nodes.policy import policy, tensors
from mstar.submodule import Call, Output, Outputs, Packed, Step
from mstar.tensors import Value


class VitEncoder:
    """pictures [n, 3, side, side] → image_tokens [n · tokens, width]; the pictures of all requests are one batch."""

    max_batch = 4

    def __init__(self, eyes: Eyes) -> None:
        self._eyes = eyes

    def collate(self, calls: Sequence[Call]) -> Packed:
        pictures = [cast("Tensor", call.inputs["pictures"]) for call in calls]
        return Packed({"pictures": torch.cat(pictures).to(self._eyes.device)})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        counts = [len(cast("Tensor", call.inputs["pictures"])) for call in step.calls]
        found = self._eyes(packed.tensors["pictures"]).split(counts)
        return {"image_tokens": [part.flatten(0, 1) for part in found]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False


def vit_encoder(settings: Mapping[str, Value]) -> VitEncoder:
    """The node; settings as in `models.pi05.model`."""
    return VitEncoder(Eyes(policy(settings).config, tensors(settings), precision(settings)))
