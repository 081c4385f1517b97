"""A graph drawn, as text or as SVG, from its description (`mstar.graph.describe`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from mstar.graph.declare import Graph
from mstar.graph.describe import describe
from mstar.graph.draw_svg import svg
from mstar.graph.draw_text import text

Format: TypeAlias = Literal["svg", "text"]


def draw(graph: Graph, form: Format) -> str:
    """The drawing. Raises GraphError for a graph that makes no sense."""
    tree: Mapping[str, Any] = describe(graph)
    return svg(tree) if form == "svg" else text(tree)
