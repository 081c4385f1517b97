"""Placements under which the toy family must do the same: those that it ships, and one rank."""

from __future__ import annotations

from pathlib import Path

from models.toy import model
from mstar.placement import Placement, one_rank, read_placement

_FILES = {path.stem.removeprefix("placement-"): path for path in Path(model.__file__).parent.glob("placement-*.yaml")}
SHAPES = ("one rank", *sorted(_FILES))
"""`apart`: every component by itself; `partitions`, `prefill`, `loop`, `replicas` likewise by what they divide."""


def shape(name: str) -> Placement:
    """The placement of the toy family that has this name."""
    return one_rank() if name == "one rank" else read_placement(_FILES[name])
