"""Rotary position settings as written in public `config.json` files (torch-free)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mstar.errors import WeightsError
from mstar.tensors import Value

RopeKind = Literal["default", "linear", "llama3"]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """`dim` rotated channels per head; angle of pair i at position p is p · theta^(-2i/dim), scaled by `kind`.

    `linear` divides all frequencies by `factor`. `llama3` divides those whose wavelength is above
    original / low_freq_factor, keeps those below original / high_freq_factor, and blends in between.
    """

    dim: int
    theta: float
    kind: RopeKind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192


def parse_rope(config: Mapping[str, Value], dim: int, *, default_theta: float = 10_000.0) -> RopeConfig:
    """From `rope_parameters` (transformers 5) or `rope_theta` + `rope_scaling` (before).

    Raises WeightsError for a scaling that is not known here, naming the field.
    """
    new = config.get("rope_parameters")
    old = config.get("rope_scaling")
    scaling: Mapping[str, Value] = new if isinstance(new, Mapping) else old if isinstance(old, Mapping) else {}
    where = "rope_parameters" if isinstance(new, Mapping) else "rope_scaling"
    theta = _number(scaling.get("rope_theta", config.get("rope_theta", default_theta)), f"{where}.rope_theta")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    partial = _number(scaling.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)), where)
    if partial != 1.0:
        raise WeightsError(f"partial_rotary_factor {partial} is not supported")
    match kind:
        case "default":
            return RopeConfig(dim, theta)
        case "linear":
            return RopeConfig(dim, theta, "linear", factor=_number(scaling.get("factor"), f"{where}.factor"))
        case "llama3":
            return RopeConfig(
                dim,
                theta,
                "llama3",
                factor=_number(scaling.get("factor"), f"{where}.factor"),
                low_freq_factor=_number(scaling.get("low_freq_factor"), f"{where}.low_freq_factor"),
                high_freq_factor=_number(scaling.get("high_freq_factor"), f"{where}.high_freq_factor"),
                original_positions=int(
                    _number(
                        scaling.get("original_max_position_embeddings"), f"{where}.original_max_position_embeddings"
                    )
                ),
            )
        case _:
            raise WeightsError(f"{where}.rope_type {kind!r} is not supported (default, linear, llama3)")


def _number(value: Value, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WeightsError(f"{field} must be a number, not {value!r}")
    return float(value)
