"""How the runtime gets at a family: a module path, resolved in the process that needs it (torch-free)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol

from mstar.errors import GraphError
from mstar.graph.check import check
from mstar.graph.declare import Graph
from mstar.tensors import Value


class Family(Protocol):
    """The `FAMILY` object of a family's torch-free `model.py`."""

    def graph(self, settings: Mapping[str, Value]) -> Graph: ...


def load_graph(module: str, settings: Mapping[str, Value]) -> Graph:
    """The checked graph of the family in `module`. Raises GraphError."""
    try:
        family: Family = importlib.import_module(module).FAMILY
    except (ImportError, AttributeError) as cause:
        raise GraphError(f"no family in {module}: {cause}") from cause
    graph = family.graph(settings)
    check(graph)
    return graph
