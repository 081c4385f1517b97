"""Placements under which the toy family must do the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.toy.model import FAMILY
from mstar.placement import Placement, placement_of

PARTITIONS = {
    "ear": ("vad", "turn"),
    "hearing": ("hear",),
    "language": ("prompt", "LM"),
    "writing": ("words", "spell"),
    "tones": ("tone",),
    "sound": ("vocoder",),
}
"""Rank → the components on it; all others are on `main`."""

COMPONENTS = tuple(component.name for component in FAMILY.graph({}).components)

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "one rank": {},
    "every component apart": {node: f"r{index}" for index, node in enumerate(COMPONENTS)},
    "prefill apart": {"LM": {"prefill": "prefill", "prefill_heard": "prefill", "warm": "prefill"}, "prompt": "prefill"},
    "a loop apart": {"encode": "a", "predict": "b", "guide": "c", "combine": "b", "decode": "a"},
    "replicas": {node: ["s0", "s1"] for node in ("tone", "vocoder")} | {"LM": ["lm0", "lm1"], "words": "lm0"},
    "partitions apart": {node: rank for rank, nodes in PARTITIONS.items() for node in nodes},
}


def shape(name: str) -> Placement:
    """The placement of the toy family that has this name."""
    nodes = SHAPES[name]
    ranks: dict[str, Any] = {"main": {}}
    for spot in nodes.values():
        for rank in _ranks(spot):
            ranks.setdefault(rank, {})
    families = {"toy": {"default": "main", "nodes": dict(nodes)}}
    return placement_of({"ranks": ranks, "families": families, "oversubscribe": True})


def _ranks(spot: Any) -> list[str]:
    match spot:
        case str():
            return [spot]
        case list():
            return spot
        case _:
            return [rank for each in spot.values() for rank in _ranks(each)]
