"""Shape and constants of a π0.5 policy, from the `config.json` of its checkpoint (torch-free)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from models.siglip.config import SO400M_224, SiglipConfig
from mstar.errors import WeightsError
from mstar.tensors import Value

CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
"""Camera slots of the published checkpoints, in the order of their tokens."""
_IMAGES = "observation.images."


@dataclass(frozen=True, slots=True)
class GemmaConfig:
    width: int
    depth: int
    inner: int  # width of the gated MLP
    heads: int
    kv_heads: int
    head_dim: int


VARIANTS: Mapping[str, GemmaConfig] = {
    "gemma_300m": GemmaConfig(1024, 18, 4096, 8, 1, 256),
    "gemma_2b": GemmaConfig(2048, 18, 16384, 8, 1, 256),
}


@dataclass(frozen=True, slots=True)
class Pi05Config:
    """`prefix` reads pictures and prompt, `expert` denoises actions over the prefix's K/V: same depth and heads."""

    prefix: GemmaConfig
    expert: GemmaConfig
    vision: SiglipConfig
    vocab: int = 257_152
    horizon: int = 50  # actions of a chunk
    action_dim: int = 32  # channels of an action; a robot uses the first few
    state_dim: int = 32  # most values a robot's state may have
    max_tokens: int = 200  # of a prompt
    cameras: tuple[str, ...] = CAMERAS
    min_period: float = 0.004  # of the time embedding
    max_period: float = 4.0
    eps: float = 1e-6
    theta: float = 10_000.0


TINY = Pi05Config(
    prefix=GemmaConfig(64, 2, 128, 8, 1, 16),
    expert=GemmaConfig(32, 2, 64, 8, 1, 16),
    vision=SiglipConfig(image=56, patch=14, hidden=32, inner=64, layers=2, heads=4),
    vocab=320,
    horizon=10,
)
"""For trying things out: the layout of the real policy at a size that answers in milliseconds."""


def read_config(folder: Path) -> Pi05Config:
    """Raises WeightsError, naming file and field, for a config that is missing, damaged or of another policy.

    An object `tiny` in it holds sizes that replace those of the named variants: `paligemma` and `action_expert`
    (width, depth, mlp_dim, num_heads, num_kv_heads, head_dim), `vision`, `vocab_size`.
    """
    file = folder / "config.json"
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WeightsError(f"{file}: missing") from None
    except (OSError, ValueError) as cause:
        raise WeightsError(f"{file}: {cause}") from None
    if not isinstance(fields, dict) or fields.get("type") != "pi05":
        found = fields.get("type") if isinstance(fields, dict) else type(fields).__name__
        raise WeightsError(f"{file}: type is {found!r}, not 'pi05'")
    try:
        return from_fields(fields)
    except WeightsError as cause:
        raise WeightsError(f"{file}: {cause}") from None


def from_fields(fields: Mapping[str, Value]) -> Pi05Config:
    """Raises WeightsError naming the field."""
    small = _object(fields, "tiny")
    config = Pi05Config(
        prefix=_gemma(fields, "paligemma_variant", "gemma_2b", _object(small, "paligemma")),
        expert=_gemma(fields, "action_expert_variant", "gemma_300m", _object(small, "action_expert")),
        vision=_vision(_object(small, "vision")),
        vocab=_integer(small, "vocab_size", 257_152),
        horizon=_integer(fields, "chunk_size", 50),
        action_dim=_integer(fields, "max_action_dim", 32),
        state_dim=_integer(fields, "max_state_dim", 32),
        max_tokens=_integer(fields, "tokenizer_max_length", 200),
        cameras=_cameras(_object(fields, "input_features")),
        min_period=_number(fields, "min_period", 0.004),
        max_period=_number(fields, "max_period", 4.0),
    )
    a, b = config.prefix, config.expert
    if (a.depth, a.heads, a.kv_heads, a.head_dim) != (b.depth, b.heads, b.kv_heads, b.head_dim):
        raise WeightsError("action_expert_variant and paligemma_variant differ in depth or heads: no common K/V")
    return config


def _gemma(fields: Mapping[str, Value], name: str, default: str, sizes: Mapping[str, Value]) -> GemmaConfig:
    if sizes:
        return GemmaConfig(
            *(_integer(sizes, each) for each in ("width", "depth", "mlp_dim", "num_heads", "num_kv_heads", "head_dim"))
        )
    variant = fields.get(name, default)
    if not isinstance(variant, str) or variant not in VARIANTS:
        raise WeightsError(f"{name} {variant!r} is not supported ({', '.join(VARIANTS)})")
    return VARIANTS[variant]


def _vision(sizes: Mapping[str, Value]) -> SiglipConfig:
    if not sizes:
        return SO400M_224
    return SiglipConfig(
        image=_integer(sizes, "image_size"),
        patch=_integer(sizes, "patch_size"),
        hidden=_integer(sizes, "hidden_size"),
        inner=_integer(sizes, "intermediate_size"),
        layers=_integer(sizes, "num_hidden_layers"),
        heads=_integer(sizes, "num_attention_heads"),
        eps=_number(sizes, "layer_norm_eps", 1e-6),
    )


def _cameras(features: Mapping[str, Value]) -> tuple[str, ...]:
    """Names behind `observation.images.` in the order of the config; slots that no camera ever fills are left out."""
    names = tuple(key.removeprefix(_IMAGES) for key in features if key.startswith(_IMAGES))
    return tuple(name for name in names if not name.startswith("empty_camera")) or CAMERAS


def _object(fields: Mapping[str, Value], name: str) -> Mapping[str, Value]:
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise WeightsError(f"{name} must be an object, not {value!r}")
    return value


def _integer(fields: Mapping[str, Value], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WeightsError(f"{name} must be a positive integer, not {value!r}")
    return value


def _number(fields: Mapping[str, Value], name: str, default: float) -> float:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise WeightsError(f"{name} must be a positive number, not {value!r}")
    return float(value)
