"""Quantiles of the data that a checkpoint was trained on, and the scaling by them (torch-free)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from mstar.errors import WeightsError
from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class Quantiles:
    """1 % and 99 % of each channel: they become -1 and 1."""

    low: np.ndarray  # [n] float64
    high: np.ndarray  # [n] float64
    slack: float  # added to every range
    least: float  # stands in for a range of nothing

    @property
    def _range(self) -> np.ndarray:
        found: np.ndarray = self.high - self.low + self.slack
        return np.where(found == 0, self.least, found) if self.least else found

    def only(self, channels: int) -> Quantiles:
        """Those of the first channels."""
        return Quantiles(self.low[:channels], self.high[:channels], self.slack, self.least)

    def normalise(self, values: np.ndarray) -> np.ndarray:
        """[..., n] in the robot's units → [..., n] float32."""
        scaled: np.ndarray = (values - self.low) / self._range * 2 - 1
        return scaled.astype(np.float32)

    def restore(self, values: np.ndarray) -> np.ndarray:
        """[..., n] normalised → [..., n] float32 in the robot's units."""
        scaled: np.ndarray = (values + 1) / 2 * self._range + self.low
        return scaled.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Statistics:
    """None = that value comes and goes normalised."""

    state: Quantiles | None = None
    actions: Quantiles | None = None


def read_statistics(path: Path) -> Statistics:
    """Of a checkpoint's folder, or of a file in one of the two public layouts.

    openpi: `norm_stats.json` (beside the weights or under `assets/<robot>/`), ranges widened by 1e-6. lerobot: the
    safetensors that `policy_preprocessor.json` names for its normaliser, ranges as they are, 1e-8 where there is none.
    Raises WeightsError when there are none, or more than one robot's.
    """
    if path.is_file():
        return _openpi(path) if path.suffix == ".json" else _lerobot(path)
    beside = path / "norm_stats.json"
    found = [beside] if beside.is_file() else sorted(path.glob("assets/**/norm_stats.json"))
    if len(found) > 1:
        names = ", ".join(str(each.relative_to(path)) for each in found)
        raise WeightsError(f"{path}: several statistics ({names}); the setting `statistics` picks one")
    if found:
        return _openpi(found[0])
    steps = path / "policy_preprocessor.json"
    if steps.is_file():
        return _lerobot(path / _state_file(steps))
    raise WeightsError(
        f"{path}: no norm_stats.json and no policy_preprocessor.json; the setting `statistics` gives a file, or "
        "'none' for values that are normalised already"
    )


def _json(path: Path) -> Mapping[str, Value]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise WeightsError(f"{path}: {cause}") from None
    if not isinstance(value, dict):
        raise WeightsError(f"{path}: holds no JSON object")
    return value


def _openpi(path: Path) -> Statistics:
    fields = _json(path)
    stats = fields.get("norm_stats", fields)
    if not isinstance(stats, Mapping):
        raise WeightsError(f"{path}: norm_stats is no object")

    def quantiles(name: str) -> Quantiles:
        found = stats.get(name)
        if not isinstance(found, Mapping):
            raise WeightsError(f"{path}: {name} is missing")
        return _quantiles(path, name, found.get("q01"), found.get("q99"), slack=1e-6, least=0.0)

    return Statistics(quantiles("state"), quantiles("actions"))


def _state_file(steps: Path) -> str:
    listed = _json(steps).get("steps")
    for step in listed if isinstance(listed, list) else ():
        if isinstance(step, Mapping) and step.get("registry_name") == "normalizer_processor":
            name = step.get("state_file")
            if isinstance(name, str) and Path(name).name == name:
                return name
    raise WeightsError(
        f"{steps}: its normaliser has no statistics; the setting `statistics` gives a file, or 'none' for values that "
        "are normalised already"
    )


def _lerobot(path: Path) -> Statistics:
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as cause:
        raise WeightsError(f"{path}: {cause}") from None

    def quantiles(name: str) -> Quantiles:
        low, high = tensors.get(f"{name}.q01"), tensors.get(f"{name}.q99")
        return _quantiles(path, name, low, high, slack=0.0, least=1e-8)

    return Statistics(quantiles("observation.state"), quantiles("action"))


def _quantiles(path: Path, name: str, low: Value, high: Value, *, slack: float, least: float) -> Quantiles:
    if low is None or high is None:
        raise WeightsError(f"{path}: {name} has no q01 and q99")
    try:
        found = Quantiles(np.asarray(low, np.float64), np.asarray(high, np.float64), slack, least)
    except (TypeError, ValueError):
        raise WeightsError(f"{path}: {name}: q01 and q99 must hold numbers") from None
    if found.low.ndim != 1 or found.low.shape != found.high.shape or not np.isfinite(found.low + found.high).all():
        raise WeightsError(f"{path}: {name}: q01 and q99 must be finite and of one length")
    return found
