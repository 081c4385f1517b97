"""The run file: what the processes of one server have in common, written by the launcher, read by each (torch-free)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mstar.bus.patience import Patience
from mstar.graph.declare import Graph
from mstar.model import load_graph
from mstar.placement import Placed, Placement, placement_of, source_told, tree_of


@dataclass(frozen=True, slots=True)
class Run:
    """`families`: name → {"module", "settings"}; `directory` holds the sockets and is its user's alone."""

    directory: Path
    families: Mapping[str, Mapping[str, Any]]
    placement: Placement
    patience: Patience = field(default_factory=Patience)

    def graphs(self) -> dict[str, Graph]:
        return {name: load_graph(str(each["module"]), each["settings"]) for name, each in self.families.items()}

    def placed(self, graphs: Mapping[str, Graph]) -> dict[str, Placed]:
        return {name: self.placement.place(name, graph) for name, graph in graphs.items()}

    def settings(self, family: str) -> Mapping[str, Any]:
        settings: Mapping[str, Any] = self.families[family]["settings"]
        return settings

    def cause(self, process: str) -> Path:
        """Where a process of the run leaves one line when it can not begin."""
        return self.directory / f"{process}.cause"

    def write(self) -> Path:
        path = self.directory / "run.json"
        tree = {
            "families": {name: dict(each) for name, each in self.families.items()},
            "placement": tree_of(self.placement),
            "source": self.placement.source.told(),
            "patience": asdict(self.patience),
        }
        path.write_text(json.dumps(tree))
        (self.directory / "key").write_bytes(secrets.token_bytes(32))  # what its workers know each other by
        return path


def read_run(path: Path) -> Run:
    """The run that `Run.write` wrote."""
    tree = json.loads(path.read_text())
    placement = placement_of(tree["placement"], source=source_told(tree["source"]))
    return Run(path.parent, tree["families"], placement, Patience(**tree["patience"]))
