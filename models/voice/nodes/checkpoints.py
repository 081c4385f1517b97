"""Where the checkpoints of a voice are, and what a rank has for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from models.pull import part_dir
from mstar.errors import WeightsError
from mstar.tensors import Value


def folder(settings: Mapping[str, Value], name: str, part: str) -> Path:
    """The path that a setting gives, else the folder of the pulled part. Raises WeightsError if that is not there."""
    given = settings.get(name)
    if isinstance(given, str):
        return Path(given)
    pulled = part_dir(part)
    if not pulled.is_dir():
        raise WeightsError(f"{pulled}: no such folder; `mstar pull voice` fetches it")
    return pulled


def threads(settings: Mapping[str, Value]) -> int:
    """Threads of the rank."""
    given = settings.get("threads")
    return given if isinstance(given, int) else 1
