"""How much K/V memory a component gets, and its rules, as they stand in a declaration or a YAML file (torch-free)."""

from __future__ import annotations

import re
from collections.abc import Mapping

LEAST: Mapping[str, int] = {
    "pages": 1,
    "page_size": 1,
    "cross_contexts": 0,
    "kept": 0,
    "unheld": 0,
    "piece": 0,
    "budget": 0,
    "grain": 1,
}
"""Numbers, and the least each may be (their meaning: `mstar.engine.kv.settings.KVSettings`)."""
SWITCHES = ("reuse", "shared", "graphs", "compile")
BYTES = "bytes"
"""The pages by memory: a number, or text such as 512M."""

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def check_memory(given: Mapping[str, object]) -> None:
    """Raise ValueError with a sentence that begins with the field."""
    for name, value in given.items():
        if name == BYTES:
            memory_bytes(value)
        elif name in SWITCHES:
            if not isinstance(value, bool):
                raise ValueError(f"{name} must be true or false, not {value!r}")
        elif name not in LEAST:
            raise ValueError(f"{name} is not known; known: {', '.join((BYTES, *LEAST, *SWITCHES))}")
        elif isinstance(value, bool) or not isinstance(value, int) or value < LEAST[name]:
            raise ValueError(f"{name} must be an integer ≥ {LEAST[name]}, not {value!r}")
    if BYTES in given and "pages" in given:
        raise ValueError("bytes and pages are two names for one thing: give one of them")


def memory_bytes(value: object) -> int:
    """Bytes, from a number or from text such as 512M, 1.5G. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"bytes must be a number or text such as 512M, not {value!r}")
    return int(float(found[1]) * _UNITS[found[2]])


def merged(family: Mapping[str, object], file: Mapping[str, object]) -> dict[str, object]:
    """What the family says of a component's memory, with what the file says over it."""
    sizes = {BYTES, "pages"}
    kept = {name: value for name, value in family.items() if not (name in sizes and sizes & set(file))}
    return {**kept, **file}
