"""Ranks, and which of them run what: a placement as data, laid over the graphs of families (torch-free)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeAlias

from mstar.errors import Rejected
from mstar.graph.declare import Emit, Graph
from mstar.graph.streams import CLIENT, Stream, section_edges, streams_of
from mstar.placement.lines import Source
from mstar.placement.memory import merged
from mstar.placement.seats import Placed, Replicas, Seating, Use, uses

TRANSPORTS = ("shared", "tcp", "inline")
"""How arrays go between workers: shared memory on one host, TCP between hosts, inside the messages."""

Spot: TypeAlias = "str | list[str] | Mapping[str, str | list[str]]"
"""A rank, several of which each session gets one, or either of them by walk."""


@dataclass(frozen=True, slots=True)
class Rank:
    name: str
    device: str = "cpu"
    threads: int = 1
    host: str = "127.0.0.1"  # the address at which other hosts reach it

    @property
    def worker(self) -> str:
        return f"worker.{self.name}"


@dataclass(frozen=True, slots=True)
class Placement:
    """`families`: name → {"default": rank, "partitions": name → `Spot`, "nodes": name → `Spot`}, as in the file."""

    ranks: tuple[Rank, ...]
    families: Mapping[str, Mapping[str, Any]]
    source: Source = field(default_factory=Source)
    oversubscribe: bool = False
    transport: str = "shared"

    def check_threads(self, cores: int) -> None:
        """Raises Rejected if the ranks compute with more threads than there are cores, and the file does not say so."""
        threads = sum(rank.threads for rank in self.ranks)
        if threads <= cores or self.oversubscribe:
            return
        shares = ", ".join(f"{rank.name} {rank.threads}" for rank in self.ranks)
        raise self.source.wrong(
            f"{threads} threads ({shares}) on {cores} cores: ranks that compute at the same time would slow each other "
            "down; `oversubscribe: true` allows it",
            "ranks",
        )

    def place(self, family: str, graph: Graph) -> Placed:
        """Raises Rejected for a node, walk or rank that does not exist, and for what can not run in several places."""
        placed = Placed(graph, _Family(self, family, graph).spots(), self._memory(family, graph), self.source)
        for pins in product(*placed.choices):
            _check_seating(self, family, graph, placed.seat(pins))
        return placed

    def _memory(self, family: str, graph: Graph) -> dict[str, Mapping[str, object]]:
        """What each K/V component's memory is to be."""
        given: Mapping[str, Mapping[str, object]] = self.families.get(family, {}).get("memory", {})
        cached = {component.name: component for component in graph.components if component.engine == "kv"}
        for name in given:
            if name not in cached:
                known = ", ".join(sorted(cached)) or "none"
                raise self.source.wrong(
                    f"family {family} has no component {name!r} with K/V memory; those with it: {known}",
                    *("families", family, "memory", name),
                )
        return {name: merged(component.memory, given.get(name, {})) for name, component in cached.items()}


class _Family:
    """One family's part of a placement, read against its graph."""

    def __init__(self, placement: Placement, family: str, graph: Graph) -> None:
        self.placement = placement
        self.family = family
        self.graph = graph
        wanted = placement.families.get(family, {})
        self.nodes: Mapping[str, Spot] = wanted.get("nodes", {})
        self.partitions: Mapping[str, Spot] = wanted.get("partitions", {})
        self.default = self._workers(wanted.get("default", placement.ranks[0].name), "default", "default")

    def spots(self) -> dict[Use, Replicas]:
        """The workers of each use of a node: its own entry, its component's, its partition's, or the default."""
        self._check_names()
        spots = {}
        for use, node, _ in uses(self.graph):
            ways = (("nodes", node.name), ("nodes", node.runs), ("partitions", use[0]))
            spots[use] = next((found for way in ways if (found := self._spot(way, use)) is not None), self.default)
        self._check_streams(spots)
        self._check_state(spots)
        return spots

    def _spot(self, way: tuple[str, str], use: Use) -> Replicas | None:
        name = way[1]
        given = (self.nodes if way[0] == "nodes" else self.partitions).get(name)
        if not isinstance(given, Mapping):
            return None if given is None else self._workers(given, name, *way)
        partition, walk, _ = use
        for key in (f"{partition}.{walk}", walk):
            if key in given:
                return self._workers(given[key], f"{name} in walk {key}", *way, key)
        return None

    def _workers(self, ranks: str | list[str], what: str, *way: str) -> Replicas:
        names = ranks if isinstance(ranks, list) else [ranks]
        known = {rank.name: rank.worker for rank in self.placement.ranks}
        for name in names:
            if name not in known:
                raise self._wrong(f"{what} of family {self.family} is on rank {name!r}, which does not exist", *way)
        if len(set(names)) < len(names) or not names:
            raise self._wrong(f"{what} of family {self.family} is on a rank twice, or on none: {names}", *way)
        return tuple(known[name] for name in names)

    def _wrong(self, message: str, *way: str) -> Rejected:
        return self.placement.source.wrong(message, "families", self.family, *way)

    # --------------------------------------------------------------------------------------------------------- checks

    def _check_names(self) -> None:
        walks: dict[str, set[str]] = {component.name: set() for component in self.graph.components}
        for (partition, walk, _), node, _ in uses(self.graph):
            for name in (node.name, node.runs):
                walks.setdefault(name, set()).update((walk, f"{partition}.{walk}"))
        self._check_spots("node", self.nodes, walks)
        within = {
            partition.name: {name for walk in partition.walks for name in (walk.name, f"{partition.name}.{walk.name}")}
            for partition in self.graph.partitions
        }
        self._check_spots("partition", self.partitions, within)

    def _check_spots(self, what: str, spots: Mapping[str, Spot], walks: Mapping[str, set[str]]) -> None:
        """`walks`: every name of this kind → the walks it stands in."""
        for name, given in spots.items():
            if name not in walks:
                known = ", ".join(sorted(walks))
                raise self._wrong(f"family {self.family} has no {what} {name!r}; it has {known}", f"{what}s", name)
            for key in given if isinstance(given, Mapping) else ():
                if key not in walks[name]:
                    known = ", ".join(sorted(walk for walk in walks[name] if "." not in walk))
                    raise self._wrong(
                        f"{what} {name} of family {self.family} is in no walk {key!r}, but in {known}",
                        *(f"{what}s", name, key),
                    )

    def _check_streams(self, spots: Mapping[Use, Replicas]) -> None:
        """The node a stream ends in runs in one place, whatever the walk: its buffer can not be in two."""
        for stream in streams_of(self.graph):
            edge = stream.edge
            where = {spots[use] for use in spots if use[0] == edge.partition and use[2] == edge.to}
            if len(where) > 1:
                placed = " and ".join(sorted("|".join(replicas) for replicas in where))
                raise self._wrong(
                    f"stream {edge.name} of family {self.family} ends in node {edge.to}, which is placed two ways: "
                    f"{placed}",
                    "nodes",
                    edge.to,
                )

    def _check_state(self, spots: Mapping[Use, Replicas]) -> None:
        """State that lives as long as its session is in one place, and what moves has one home that moves it."""
        where: dict[str, set[Replicas]] = {}
        partitions: dict[str, set[str]] = {}
        for use, node, _ in uses(self.graph):
            where.setdefault(node.runs, set()).add(spots[use])
            partitions.setdefault(node.runs, set()).add(use[0])
        for component in self.graph.components:
            if len(where.get(component.name, ())) <= 1:
                continue
            why = ""
            if component.state == "session":
                why = "keeps state of its session"
            elif len(partitions[component.name]) > 1:
                why = f"is used in partitions {' and '.join(sorted(partitions[component.name]))}"
            if why:
                raise self._wrong(
                    f"component {component.name} of family {self.family} {why}, so all its nodes run in one place",
                    *("nodes", component.name),
                )


def _check_seating(placement: Placement, family: str, graph: Graph, seating: Seating) -> None:
    """In one request, a stream is fed from one worker and an output leaves from one."""
    streams = streams_of(graph)
    outputs = _emitting(graph)
    for task in graph.tasks:
        for stream in streams:
            homes = {seating.homes[name] for name in _feeding(stream, task.start)}
            if len(homes) > 1:
                raise placement.source.wrong(
                    f"stream {stream.edge.name} of family {family} is fed from {' and '.join(sorted(homes))} in task "
                    f"{task.name}",
                    *("families", family),
                )
        for output, partitions in outputs.items():
            homes = {seating.homes[name] for name in partitions if name in task.start}
            if len(homes) > 1:
                raise placement.source.wrong(
                    f"output {output} of family {family} leaves from {' and '.join(sorted(homes))} in task {task.name}",
                    *("families", family),
                )


def _feeding(stream: Stream, running: Mapping[str, str]) -> list[str]:
    return [name for name in stream.producers if name != CLIENT and name in running]


def _emitting(graph: Graph) -> dict[str, set[str]]:
    emitting: dict[str, set[str]] = {}
    for partition in graph.partitions:
        for walk in partition.walks:
            for _, edge in section_edges(walk.section):
                if isinstance(edge, Emit):
                    emitting.setdefault(edge.name, set()).add(partition.name)
    return emitting


def one_rank(threads: int = 1, device: str = "cpu") -> Placement:
    """Everything on one rank named `main`."""
    return Placement((Rank("main", device, threads),), {})
