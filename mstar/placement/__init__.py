"""Which rank runs what: YAML → `Placement`, refused with `path:line: message` when it can not be (torch-free).

    ranks:
      ear:  {device: cpu, threads: 1}
      main: {device: cpu, threads: 2}
    families:
      voice:
        default: main
        nodes: {vad: ear, turn: ear}

Nodes that are not named run on the family's `default` rank. All nodes of a partition run on one rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mstar.errors import Rejected
from mstar.graph.declare import Emit, Graph
from mstar.graph.streams import section_edges, section_nodes


@dataclass(frozen=True, slots=True)
class Rank:
    name: str
    device: str = "cpu"
    threads: int = 1

    @property
    def worker(self) -> str:
        return f"worker.{self.name}"


@dataclass(frozen=True, slots=True)
class Placed:
    """One family's partitions and live streams on workers."""

    partitions: Mapping[str, str]  # partition → worker
    live: Mapping[str, tuple[str, ...]]  # live stream → workers that take it
    outputs: Mapping[str, tuple[str, ...]]  # output to the client → workers that emit it

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(sorted({*self.partitions.values(), *(w for ws in self.live.values() for w in ws)}))


@dataclass(frozen=True, slots=True)
class Placement:
    ranks: tuple[Rank, ...]
    families: Mapping[str, Mapping[str, Any]]
    path: str = ""

    def crowded(self, cores: int) -> str | None:
        """A sentence if the ranks compute with more threads than there are cores."""
        threads = sum(rank.threads for rank in self.ranks)
        if threads <= cores:
            return None
        shares = ", ".join(f"{rank.name} {rank.threads}" for rank in self.ranks)
        return (
            f"{threads} threads ({shares}) on {cores} cores: ranks that compute at the same time slow each other down"
        )

    def place(self, family: str, graph: Graph) -> Placed:
        """Raises Rejected for a node or rank that does not exist, or a partition on two ranks."""
        wanted = self.families.get(family, {})
        default = self._worker(wanted.get("default", self.ranks[0].name), family, "default")
        nodes = {name: self._worker(rank, family, name) for name, rank in wanted.get("nodes", {}).items()}
        known = {component.name for component in graph.components}
        for name in nodes:
            if name not in known:
                raise self._wrong(name, f"family {family} has no node {name!r}; it has {', '.join(sorted(known))}")
        where: dict[str, str] = {}
        partitions: dict[str, str] = {}
        for partition in graph.partitions:
            workers = {}
            for walk in partition.walks:
                for node in section_nodes(walk.section):
                    workers[node.runs] = nodes.get(node.runs, default)
            if len(set(workers.values())) != 1:
                split = ", ".join(f"{node} on {worker}" for node, worker in sorted(workers.items()))
                raise self._wrong(
                    next(iter(nodes)), f"partition {partition.name!r} of {family} is on two ranks: {split}"
                )
            partitions[partition.name] = next(iter(workers.values()))
            where.update(workers)
        live = {}
        for stream in graph.live:
            feeding = {partitions[edge.partition] for edge in stream.edges} | {where[node] for node in stream.slices}
            live[stream.name] = tuple(sorted(feeding))
        outputs: dict[str, tuple[str, ...]] = {}
        for partition in graph.partitions:
            for walk in partition.walks:
                for _, edge in section_edges(walk.section):
                    if isinstance(edge, Emit):
                        emitting = {*outputs.get(edge.name, ()), partitions[partition.name]}
                        outputs[edge.name] = tuple(sorted(emitting))
        return Placed(partitions, live, outputs)

    def _worker(self, rank: str, family: str, what: str) -> str:
        for known in self.ranks:
            if known.name == rank:
                return known.worker
        raise self._wrong(rank, f"{what} of family {family} is on rank {rank!r}, which does not exist")

    def _wrong(self, word: str, message: str) -> Rejected:
        return Rejected(f"{_locate(self.path, word)}{message}", code="invalid_placement", param="placement")


def read_placement(path: Path) -> Placement:
    """Raises Rejected with `path:line: message`."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as cause:
        raise Rejected(f"{path}: {cause.strerror}", code="invalid_placement", param="placement") from cause
    except yaml.MarkedYAMLError as cause:
        line = cause.problem_mark.line + 1 if cause.problem_mark else 1
        raise Rejected(f"{path}:{line}: {cause.problem}", code="invalid_placement", param="placement") from cause
    except (yaml.YAMLError, UnicodeDecodeError) as cause:
        raise Rejected(f"{path}: this is no YAML text", code="invalid_placement", param="placement") from cause
    return placement_of(tree, path=str(path))


def placement_of(tree: Any, *, path: str = "") -> Placement:
    """A placement from plain data, as it stands in the YAML file."""

    def wrong(word: str, message: str) -> Rejected:
        return Rejected(f"{_locate(path, word)}{message}", code="invalid_placement", param="placement")

    if not isinstance(tree, dict) or not isinstance(tree.get("ranks"), dict) or not tree["ranks"]:
        raise wrong("ranks", "`ranks` must map names to {device, threads}")
    ranks = []
    for name, given in tree["ranks"].items():
        fields = given or {}
        if not isinstance(fields, dict):
            raise wrong(name, f"rank {name} must be {{device, threads}}")
        unknown = set(fields) - {"device", "threads"}
        if unknown:
            raise wrong(unknown.pop(), f"rank {name} has an unknown field; known: device, threads")
        threads = fields.get("threads", 1)
        if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
            raise wrong(name, f"rank {name}: threads must be a positive integer")
        ranks.append(Rank(str(name), str(fields.get("device", "cpu")), threads))
    families = tree.get("families") or {}
    if not isinstance(families, dict):
        raise wrong("families", "`families` must map names to {default, nodes}")
    for name, given in families.items():
        if not isinstance(given, dict) or not set(given) <= {"default", "nodes"}:
            raise wrong(name, f"family {name} must be {{default, nodes}}")
        if not isinstance(given.get("nodes", {}), dict):
            raise wrong("nodes", f"`nodes` of family {name} must map nodes to ranks")
    strange = set(tree) - {"ranks", "families"}
    if strange:
        word = strange.pop()
        raise wrong(word, f"unknown field {word!r}; known: ranks, families")
    return Placement(tuple(ranks), families, path)


def one_rank(threads: int = 1, device: str = "cpu") -> Placement:
    """Everything on one rank named `main`."""
    return Placement((Rank("main", device, threads),), {})


def _locate(path: str, word: str) -> str:
    if not path:
        return ""
    try:
        for number, line in enumerate(Path(path).read_text().splitlines(), 1):
            if re.search(rf"(?<![\w-]){re.escape(str(word))}(?![\w-])", line.split("#")[0]):
                return f"{path}:{number}: "
    except OSError:
        pass
    return f"{path}: "
