"""Where one family's nodes run: its graph crossed with a placement (torch-free).

A partition has a *home*: the worker that holds its cursors, stream buffers and kept values. It is the one that runs
most of the partition's nodes, those in loops counting more, so that what fires most often fires without a message. A
node that is placed elsewhere is *away*: its home sends it each firing and gets the outcome back.

A component with several ranks in a list has *replicas*: a session is pinned to one of them when it opens. Components
with the same list are pinned together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mstar.graph.declare import DynamicLoop, Emit, Graph, GraphNode, Loop, Parallel, Section, Sequential
from mstar.graph.streams import section_edges
from mstar.placement.lines import Source

Use = tuple[str, str, str]
"""(partition, walk, node)"""
Replicas = tuple[str, ...]
"""The workers of which a session gets one."""

LOOP_WEIGHT = 64
"""How much more often a node fires for each loop around it, when a partition's home is chosen."""


@dataclass(frozen=True, slots=True)
class Seating:
    """Where everything of one session runs."""

    homes: Mapping[str, str]  # partition → worker
    away: Mapping[Use, str]  # node placed elsewhere than its partition's home → worker
    live: Mapping[str, tuple[str, ...]]  # live stream → workers that take it
    outputs: Mapping[str, tuple[str, ...]]  # output to the client → workers that emit it
    moving: frozenset[str] = frozenset()  # components that run on several of the session's workers
    pins: tuple[str, ...] = ()  # the worker chosen of each list of replicas

    @property
    def workers(self) -> tuple[str, ...]:
        """All of the session's workers."""
        return tuple(sorted({*self.homes.values(), *self.away.values(), *(w for ws in self.live.values() for w in ws)}))

    def of(self, partitions: Iterable[str]) -> tuple[str, ...]:
        """The workers of a request that runs these partitions."""
        running = set(partitions)
        away = {worker for (partition, _, _), worker in self.away.items() if partition in running}
        return tuple(sorted(away | {self.homes[partition] for partition in running}))


@dataclass(frozen=True, slots=True)
class Placed:
    """One family on workers; `spots` names the ranks of each use of a node, of which a session gets one."""

    graph: Graph
    spots: Mapping[Use, Replicas]
    memory: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict
    )  # K/V component → see `mstar.placement.memory`
    source: Source = field(default_factory=Source)  # of the placement, for what turns out to be wrong later
    _seatings: dict[tuple[tuple[Replicas, str], ...], Seating] = field(default_factory=dict)

    @property
    def workers(self) -> tuple[str, ...]:
        """Every worker that takes part in some session of the family."""
        return tuple(sorted({worker for replicas in self.spots.values() for worker in replicas}))

    @property
    def choices(self) -> tuple[Replicas, ...]:
        """The lists of replicas that a session is pinned to one of."""
        return tuple(dict.fromkeys(replicas for replicas in self.spots.values() if len(replicas) > 1))

    def pins(self, load: Mapping[str, int]) -> tuple[str, ...]:
        """For each of `choices` the worker to which the fewest sessions are pinned, the first of equals."""
        return tuple(min(replicas, key=lambda worker: load.get(worker, 0)) for replicas in self.choices)

    def seat(self, pins: tuple[str, ...] = ()) -> Seating:
        """The seating of a session with these pins, one for each of `choices`; missing ones are the first replica."""
        chosen = dict(zip(self.choices, pins, strict=False))
        key = tuple((replicas, chosen.get(replicas, replicas[0])) for replicas in self.choices)
        known = self._seatings.get(key)
        if known is None:
            known = self._seatings[key] = _seating(self.graph, self.spots, dict(key))
        return known

    def components(self, worker: str) -> frozenset[str]:
        """Components that some session runs on the worker."""
        runs = {use: node.runs for use, node, _ in uses(self.graph)}
        return frozenset(runs[use] for use, replicas in self.spots.items() if worker in replicas)

    def walks(self, worker: str, component: str) -> tuple[str, ...]:
        """Walks in which some session runs the component on the worker."""
        named = {use: use[1] for use, node, _ in uses(self.graph) if node.runs == component}
        return tuple(sorted({walk for use, walk in named.items() if worker in self.spots[use]}))


def uses(graph: Graph) -> Iterator[tuple[Use, GraphNode, int]]:
    """Every use of a node, with the number of loops around it."""
    for partition in graph.partitions:
        for walk in partition.walks:
            for node, depth in _nodes(walk.section, 0):
                yield (partition.name, walk.name, node.name), node, depth


def _nodes(section: Section, depth: int) -> Iterator[tuple[GraphNode, int]]:
    match section:
        case GraphNode():
            yield section, depth
        case Sequential(sections=members) | Parallel(sections=members):
            for member in members:
                yield from _nodes(member, depth)
        case Loop(section=body) | DynamicLoop(section=body):
            yield from _nodes(body, depth + 1)


def _seating(graph: Graph, spots: Mapping[Use, Replicas], chosen: Mapping[Replicas, str]) -> Seating:
    where = {use: chosen.get(replicas, replicas[0]) for use, replicas in spots.items()}
    weights: dict[str, Counter[str]] = {partition.name: Counter() for partition in graph.partitions}
    runs: dict[str, set[str]] = {}
    for use, node, depth in uses(graph):
        weights[use[0]][where[use]] += LOOP_WEIGHT**depth
        runs.setdefault(node.runs, set()).add(where[use])
    homes = {name: max(counted, key=lambda worker: counted[worker]) for name, counted in weights.items()}
    return Seating(
        homes=homes,
        away={use: worker for use, worker in where.items() if worker != homes[use[0]]},
        live=_live(graph, homes),
        outputs=_outputs(graph, homes),
        moving=frozenset(name for name, workers in runs.items() if len(workers) > 1),
        pins=tuple(chosen.values()),
    )


def _live(graph: Graph, homes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    holders: dict[str, set[str]] = {}
    for (partition, _, _), node, _ in uses(graph):
        for name in (node.name, node.runs):
            holders.setdefault(name, set()).add(homes[partition])
    live = {}
    for stream in graph.live:
        taking = {homes[edge.partition] for edge in stream.edges}
        live[stream.name] = tuple(sorted(taking.union(*(holders[node] for node in stream.slices))))
    return live


def _outputs(graph: Graph, homes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    outputs: dict[str, set[str]] = {}
    for partition in graph.partitions:
        for walk in partition.walks:
            for _, edge in section_edges(walk.section):
                if isinstance(edge, Emit):
                    outputs.setdefault(edge.name, set()).add(homes[partition.name])
    return {name: tuple(sorted(workers)) for name, workers in outputs.items()}
