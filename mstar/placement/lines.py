"""Where in its YAML text each part of a placement stands, so that what is wrong is refused with its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from mstar.errors import Rejected

Way = tuple[str, ...]
"""The keys that lead to a part of the file."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file's path and the line of each of its keys; without a path, sentences stand alone."""

    path: str = ""
    lines: Mapping[Way, int] = field(default_factory=dict)

    def wrong(self, message: str, *way: str) -> Rejected:
        """The refusal of what stands at the end of `way`, or of its nearest part that stands in the file."""
        where = self.path
        if where:
            line = next((self.lines[way[:n]] for n in range(len(way), 0, -1) if way[:n] in self.lines), None)
            where += f":{line}: " if line else ": "
        return Rejected(f"{where}{message}", code="invalid_placement", param="placement")

    def told(self) -> dict[str, Any]:
        """As plain data, for the processes that have not read the file."""
        return {"path": self.path, "lines": [[list(way), line] for way, line in self.lines.items()]}


def source_told(tree: Mapping[str, Any]) -> Source:
    """What `Source.told` told."""
    return Source(tree["path"], {tuple(way): line for way, line in tree["lines"]})


def source_of(path: str, text: str) -> Source:
    """The lines of a YAML text. Raises Rejected for a key that stands twice, yaml.YAMLError for what is no YAML."""
    lines: dict[Way, int] = {}
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is not None:
        _note(root, (), lines, path)
    return Source(path, lines)


def _note(node: yaml.Node, way: Way, lines: dict[Way, int], path: str) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        here = (*way, str(key.value))
        line = key.start_mark.line + 1
        if here in lines:
            what = "rank" if way == ("ranks",) else "key"
            message = f"{what} {key.value!r} stands twice, first in line {lines[here]}"
            raise Source(path, {here: line}).wrong(message, *here)
        lines[here] = line
        _note(value, here, lines, path)
