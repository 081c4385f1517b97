"""Toy world model: latents are arrays that one can compute by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.toy.nodes.plain import PerCall
from mstar.submodule import Call, Output
from mstar.tensors import Value


def _array(value: Value) -> np.ndarray:
    return np.asarray(value, dtype=np.float64)


def encode(_: Mapping[str, Value]) -> PerCall:
    """state → latent = state + 1, context = state, imagined = state; stops at the request's `horizon`."""

    def run(call: Call) -> Mapping[str, Output]:
        state = _array(call.inputs["state"])
        return {"latent": state + 1, "context": state, "imagined": state}

    def stop(call: Call) -> bool:
        return call.iteration + 1 >= int(call.settings.get("horizon") or 8)  # type: ignore[arg-type]

    return PerCall(run, ("latent", "context", "imagined"), stop=stop)


def predict(_: Mapping[str, Value]) -> PerCall:
    """latent, context → main = 2 · latent + context."""
    return PerCall(lambda call: {"main": _array(call.inputs["latent"]) * 2 + _array(call.inputs["context"])}, ("main",))


def guide(_: Mapping[str, Value]) -> PerCall:
    """latent → other = latent − 1."""
    return PerCall(lambda call: {"other": _array(call.inputs["latent"]) - 1}, ("other",))


def combine(_: Mapping[str, Value]) -> PerCall:
    """main, other → latent = their mean."""
    return PerCall(
        lambda call: {"latent": (_array(call.inputs["main"]) + _array(call.inputs["other"])) / 2}, ("latent",)
    )


def decode(_: Mapping[str, Value]) -> PerCall:
    """latent, path [passes] → picture {"latent", "path"}."""
    return PerCall(
        lambda call: {"picture": {"latent": call.inputs["latent"], "path": call.inputs["path"]}}, ("picture",)
    )
