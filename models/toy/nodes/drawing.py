"""Toy guidance: a latent is drawn towards what a prompt says and away from what none says, each in a K/V cache.

The two branches are components of their own, which may be placed apart, or two labels of one component, which take a
step together. They compute the same, number for number.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from models.blocks.values import floats, ints, text
from models.toy.nodes.plain import PerCall
from mstar.submodule import Call, KVGeometry, Output, Outputs, Packed, Row, Sampling, Step
from mstar.tensors import Value

ROWS, WIDTH = 6, 4
"""Of a latent."""
STRENGTH = 3.0
"""How much further towards the prompt than it says; the request's setting `strength` overrides it."""
PROMPTED, FREE = "main", "free"
"""Labels of the branches."""


def sketch(_: Mapping[str, Value]) -> PerCall:
    """prompt → words [n] int64 (its bytes), nothing [1] int64 (the prompt that says nothing), latent [6, 4] (noise)."""

    def run(call: Call) -> Mapping[str, Output]:
        words = np.frombuffer(text(call.inputs["prompt"]).encode() or b" ", dtype=np.uint8).astype(np.int64)
        noise = np.random.default_rng(zlib.crc32(str(call.settings.get("seed")).encode()))
        latent = noise.standard_normal((ROWS, WIDTH)).astype(np.float32)
        return {"words": words, "nothing": np.zeros(1, np.int64), "latent": latent}

    return PerCall(run, ("words", "nothing", "latent"))


class Branches:
    """Prompts (an input of words for each label) into the cache, or (input `latent`) what each label makes of a latent.

    Outputs, of a latent only: `velocity` [6, 4] where there is one label; where there are two, `latent` a step further.
    """

    max_batch = 8
    sampling: Sampling | None = None

    def __init__(self, inputs: Mapping[str, str]) -> None:
        """`inputs`: label → the name of its words."""
        self._inputs = dict(inputs)
        self.geometry = KVGeometry(layers=1, kv_heads=1, head_dim=WIDTH, labels=tuple(inputs))

    def keys(self, call: Call) -> np.ndarray:
        """The first label's words; none for a latent, which appends nothing."""
        return (
            np.zeros(0, np.int64) if "latent" in call.inputs else ints(call.inputs[next(iter(self._inputs.values()))])
        )

    def collate(self, calls: Sequence[Call]) -> Packed:
        if "latent" in calls[0].inputs:
            latents = [torch.from_numpy(floats(call.inputs["latent"])) for call in calls for _ in self._inputs]
            rows = [Row(n, ROWS, label, causal=False, store=False) for n in range(len(calls)) for label in self._inputs]
            return Packed({"latents": torch.stack(latents)}, tuple(rows))
        parts, rows = [], []
        for n, call in enumerate(calls):
            for label, name in self._inputs.items():
                parts.append(ints(call.inputs[name])[call.reused if label == PROMPTED else 0 :])
                rows.append(Row(n, len(parts[-1]), label))
        return Packed({"words": torch.from_numpy(np.concatenate(parts))}, tuple(rows))

    def forward(self, packed: Packed, step: Step) -> Outputs:
        assert step.attention is not None
        if "words" in packed.tensors:
            spelled = _spelled(packed.tensors["words"])[:, None]  # [words, 1, 4]
            step.attention.attend(0, spelled, spelled, spelled)
            return {}
        latents = packed.tensors["latents"].flatten(0, 1)[:, None]  # [rows of all, 1, 4]
        seen = step.attention.attend(0, latents, latents, latents)[:, 0].unflatten(0, (len(step.calls), -1, ROWS))
        velocities = [list(of_call.numpy()) for of_call in seen]
        if len(self._inputs) == 1:
            return {"velocity": [only for [only] in velocities]}
        steered = [_steered(call, towards, away) for call, (towards, away) in zip(step.calls, velocities, strict=True)]
        return {"latent": steered}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False


def _spelled(words: Tensor) -> Tensor:
    """[n] int64 → [n, 4] float32."""
    return torch.stack([((words * (17 + 2 * n)) % 256) / 128 - 1 for n in range(WIDTH)], dim=1).float()


def _steered(call: Call, towards: np.ndarray, away: np.ndarray) -> np.ndarray:
    """The call's latent [6, 4] a step further."""
    given = call.settings.get("strength")
    strength = np.float32(STRENGTH if given is None else given)  # type: ignore[arg-type]
    moved: np.ndarray = floats(call.inputs["latent"]) + np.float32(0.25) * (away + strength * (towards - away))
    return moved


def prompted(_: Mapping[str, Value]) -> Branches:
    """The branch of the prompt: input `words`."""
    return Branches({PROMPTED: "words"})


def free(_: Mapping[str, Value]) -> Branches:
    """The branch without: input `nothing`."""
    return Branches({PROMPTED: "nothing"})


def guided(_: Mapping[str, Value]) -> Branches:
    """Both branches as labels of one cache."""
    return Branches({PROMPTED: "words", FREE: "nothing"})


def steer(_: Mapping[str, Value]) -> PerCall:
    """latent, towards, away → latent, a step further: by away + strength · (towards − away)."""
    return PerCall(
        lambda call: {"latent": _steered(call, floats(call.inputs["towards"]), floats(call.inputs["away"]))},
        ("latent",),
    )


def show(_: Mapping[str, Value]) -> PerCall:
    """latent → drawn, the same for the client."""
    return PerCall(lambda call: {"drawn": floats(call.inputs["latent"])}, ("drawn",))
