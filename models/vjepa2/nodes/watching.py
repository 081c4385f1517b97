"""Nodes of V-JEPA 2: clips in; tokens, predicted tokens and classes out. The encoder node serves both networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from models.vjepa2.network import Encoder
from models.vjepa2.nodes import checkpoints
from models.vjepa2.nodes.each import Each, leaving, tensor
from models.vjepa2.pictures import normalised, pictures
from mstar.errors import Rejected
from mstar.submodule import Call, Output, Outputs, Packed, Step
from mstar.tensors import Value


class EncoderSubmodule:
    """pixels [clips, frames, 3, size, size] → tokens [clips, n, width].

    Clips of equal length go through the network together, whoever they belong to.
    """

    max_batch = 8

    def __init__(self, network: Encoder) -> None:
        self._network = network

    def collate(self, calls: Sequence[Call]) -> Packed:
        device = self._network.device
        return Packed({str(index): tensor(call.inputs["pixels"]).to(device) for index, call in enumerate(calls)})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        tokens: list[Tensor | None] = [None] * len(step.calls)
        by_length: dict[int, list[int]] = {}
        for index in range(len(step.calls)):
            by_length.setdefault(packed.tensors[str(index)].shape[1], []).append(index)
        for members in by_length.values():
            clips = [packed.tensors[str(index)] for index in members]
            encoded = self._network(torch.cat(clips)).split([len(each) for each in clips])
            for index, part in zip(members, encoded, strict=True):
                tokens[index] = part
        return {"tokens": tokens}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False


def video_encoder(settings: Mapping[str, Value]) -> EncoderSubmodule:
    """Whole clips."""
    return EncoderSubmodule(checkpoints.video(settings).encoder)


def classifier_encoder(settings: Mapping[str, Value]) -> EncoderSubmodule:
    """Whole clips, with a classifier's own weights."""
    return EncoderSubmodule(checkpoints.classifier_encoder(settings))


def latents(_: Mapping[str, Value]) -> Each:
    """tokens [clips, n, width] → latents, the same for the client."""
    return Each(lambda call: {"latents": leaving(tensor(call.inputs["tokens"]))}, ("latents",))


def clip(settings: Mapping[str, Value]) -> Each:
    """frames [n, height, width, 3] uint8 → pixels [1, n, 3, size, size]."""
    has_video = settings.get("video") or not settings.get("classifier")
    config = checkpoints.video(settings).config if has_video else checkpoints.classifier_config(settings)
    sizes = config.clip

    def run(call: Call) -> Mapping[str, Output]:
        frames = pictures("frames", call.inputs["frames"])
        if len(frames) > sizes.frames:
            raise Rejected(f"frames: {len(frames)}, a clip has at most {sizes.frames}", param="frames")
        return {"pixels": normalised(frames, sizes.size, "centre")[None]}

    return Each(run, ("pixels",))


def predictor(settings: Mapping[str, Value]) -> Each:
    """tokens [1, n, width]; context, target [k] places, none = all → predicted [target, width]."""
    network = checkpoints.video(settings).predictor

    def run(call: Call) -> Mapping[str, Output]:
        tokens = tensor(call.inputs["tokens"])[0].to(network.device)
        context, target = (_places(name, call.inputs[name], len(tokens)).to(tokens.device) for name in _MASKS)
        return {"predicted": leaving(network(tokens, context, target))}

    return Each(run, ("predicted",))


_MASKS = ("context", "target")


def _places(name: str, value: Value, count: int) -> Tensor:
    given = np.asarray(value)
    if not given.size:
        return torch.arange(count)
    if given.ndim != 1 or given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= count:
        raise Rejected(f"{name}: expected places from 0 to {count - 1} in one list", param=name)
    return torch.from_numpy(given.astype(np.int64))


def classes(settings: Mapping[str, Value]) -> Each:
    """tokens [1, n, width] → classes {"logits" [classes], "label"}."""
    network = checkpoints.classifier(settings)

    def run(call: Call) -> Mapping[str, Output]:
        logits = leaving(network(tensor(call.inputs["tokens"]).to(network.device))[0])
        return {"classes": {"logits": logits, "label": network.labels[int(logits.argmax())]}}

    return Each(run, ("classes",))
