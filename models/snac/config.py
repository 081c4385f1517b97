"""Shape of a SNAC codec, from its public `config.json` (torch-free)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mstar.errors import WeightsError
from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class SnacConfig:
    rate: int  # samples a second
    latent: int  # channels between codebooks and decoder
    decoder: int  # channels of the decoder's first block; every block halves them
    strides: tuple[int, ...]  # of the decoder's blocks
    codebook: int  # codes of a level
    code: int  # channels of a code
    levels: tuple[int, ...]  # latent steps that a code of each level lasts
    noise: bool  # the blocks add noise
    depthwise: bool

    @property
    def hop(self) -> int:
        """Samples of a latent step."""
        return math.prod(self.strides)

    @property
    def frame(self) -> int:
        """Latent steps after which all levels begin a code."""
        return max(self.levels)


def read_config(file: Path) -> SnacConfig:
    """Raises WeightsError naming file and field."""
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WeightsError(f"{file}: missing") from None
    except (OSError, ValueError) as cause:
        raise WeightsError(f"{file}: {cause}") from None
    if not isinstance(fields, dict):
        raise WeightsError(f"{file}: holds no JSON object")
    try:
        return parse_config(fields)
    except WeightsError as cause:
        raise WeightsError(f"{file}: {cause}") from None


def parse_config(fields: Mapping[str, Value]) -> SnacConfig:
    """From the fields of a public `config.json`. Raises WeightsError naming the field."""
    if fields.get("attn_window_size") is not None:
        raise WeightsError(f"attn_window_size {fields['attn_window_size']!r} is not supported (null)")
    down = _counts(fields, "encoder_rates")
    levels = _counts(fields, "vq_strides")
    if any(levels[0] % stride for stride in levels) or list(levels) != sorted(levels, reverse=True):
        raise WeightsError(f"vq_strides {levels} must fall, each dividing the first")
    latent = fields.get("latent_dim")
    return SnacConfig(
        rate=_count(fields, "sampling_rate"),
        latent=_count(fields, "encoder_dim") * 2 ** len(down) if latent is None else _count(fields, "latent_dim"),
        decoder=_count(fields, "decoder_dim"),
        strides=_counts(fields, "decoder_rates"),
        codebook=_count(fields, "codebook_size"),
        code=_count(fields, "codebook_dim"),
        levels=levels,
        noise=_flag(fields, "noise"),
        depthwise=_flag(fields, "depthwise"),
    )


def _count(fields: Mapping[str, Value], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WeightsError(f"{name} must be a positive integer, not {value!r}")
    return value


def _counts(fields: Mapping[str, Value], name: str) -> tuple[int, ...]:
    value = fields.get(name)
    if isinstance(value, list) and value:
        return tuple(_count({name: item}, name) for item in value)
    raise WeightsError(f"{name} must be a list of positive integers, not {value!r}")


def _flag(fields: Mapping[str, Value], name: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool):
        raise WeightsError(f"{name} must be true or false, not {value!r}")
    return value
