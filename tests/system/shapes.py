"""Placements under which a family must do the same: one rank, those that it ships, every component by itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from models.toy import model
from mstar.graph.declare import Graph
from mstar.placement import Placement, one_rank, placement_of, read_placement


def shipped(family: ModuleType) -> Mapping[str, Placement]:
    """`placement-NAME.yaml` beside a family's model.py, by name."""
    folder = Path(str(family.__file__)).parent
    return {path.stem.removeprefix("placement-"): read_placement(path) for path in folder.glob("placement-*.yaml")}


def apart(graph: Graph) -> Placement:
    """Every component of a family on a rank of its own."""
    names = [component.name for component in graph.components]
    nodes = {name: f"r{number}" for number, name in enumerate(names)}
    ranks: dict[str, dict[str, int]] = {rank: {"threads": 1} for rank in nodes.values()}
    return placement_of({"ranks": ranks, "families": {graph.name: {"nodes": nodes}}, "oversubscribe": True})


_TOY = {"one rank": one_rank(), **shipped(model)}
SHAPES = tuple(sorted(_TOY))
"""Of the toy family. `apart`: every component by itself; the others by what they divide."""


def shape(name: str) -> Placement:
    """The placement of the toy family that has this name."""
    return _TOY[name]
