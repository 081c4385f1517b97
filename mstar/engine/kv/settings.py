"""Size and rules of one component's K/V memory, from plain numbers as they stand in a declaration or a YAML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from mstar.errors import Rejected
from mstar.submodule import KVGeometry

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class KVSettings:
    """Bytes = pages · page_size · layers · 2 · kv_heads · head_dim · itemsize."""

    pages: int = 2048
    page_size: int = 16  # positions
    cross_contexts: int = 16  # requests that may have a cross-attention context at a time
    kept: int = 2  # idle sequences a session keeps for its next prompts
    reuse: bool = True
    shared: bool = True  # prompts in pieces reuse what other sessions computed, whole grains of it
    grain: int = 32  # positions at whose multiples a prompt may be cut without changing a bit (see docs/determinism.md)
    unheld: int = 64  # pages that stay cached when the session that computed them has ended
    piece: int = 64  # new positions of a prompt a step, where the submodule is `Divisible`; 0 = all
    budget: int = 64  # new prompt positions a step over all requests, likewise; exceeded by less than a piece
    device: str = "cpu"

    def shareable(self, common: int, prompt: int) -> int:
        """How many of `common` leading positions a prompt of `prompt` takes over from others.

        Half a grain is left to compute, since a few positions may take a path of their own through the kernels.
        """
        return max(0, min(common, prompt - self.grain // 2)) // self.grain * self.grain


def page_bytes(geometry: KVGeometry, page_size: int) -> int:
    """Bytes of one page, all layers."""
    return page_size * geometry.layers * 2 * geometry.kv_heads * geometry.head_dim * geometry.dtype.itemsize


def kv_settings(
    component: str, given: Mapping[str, object], geometry: KVGeometry, default: KVSettings | None = None
) -> KVSettings:
    """The settings of a component: `default` with what is given over it.

    Beside the names of `KVSettings`, `bytes` gives the pages by memory: a number, or text such as "512M". Raises
    Rejected, naming the field.
    """
    settings = default or KVSettings()
    kinds = {field.name: field.type for field in fields(KVSettings) if field.name != "device"}
    chosen: dict[str, int | bool] = {}
    for name, value in given.items():
        where = f"memory.{component}.{name}"
        if name == "bytes":
            continue
        if name not in kinds:
            raise Rejected(f"{where} is not known; known: bytes, {', '.join(kinds)}", param=where)
        if kinds[name] == "bool":
            if not isinstance(value, bool):
                raise Rejected(f"{where} must be true or false, got {value!r}", param=where)
            chosen[name] = value
            continue
        least = 1 if name in {"pages", "page_size", "grain"} else 0
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise Rejected(f"{where} must be an integer ≥ {least}, got {value!r}", param=where)
        chosen[name] = value
    settings = replace(settings, **chosen)  # type: ignore[arg-type]  # checked by name above
    if "bytes" not in given:
        return settings
    if "pages" in given:
        raise Rejected(f"memory.{component} has both bytes and pages", param=f"memory.{component}.bytes")
    each = page_bytes(geometry, settings.page_size)
    size = _size(given["bytes"], f"memory.{component}.bytes")
    if size < each:
        raise Rejected(
            f"memory.{component}.bytes: {size} bytes hold no page of {each}", param=f"memory.{component}.bytes"
        )
    return replace(settings, pages=size // each)


def _size(value: object, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", value.strip()) if isinstance(value, str) else None
    if found is None:
        raise Rejected(f"{where} must be a number of bytes or text such as 512M, got {value!r}", param=where)
    return int(float(found[1]) * _UNITS[found[2]])
