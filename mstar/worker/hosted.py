"""A family as one worker hosts it: compiled walks, which node may run what, how far each node is from the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mstar.graph.declare import Component, Emit, Graph, LiveInput, StreamingGraphEdge, Task
from mstar.graph.plan import GraphPlan, WalkPlan, compile_graph
from mstar.graph.streams import CLIENT, section_edges, section_nodes
from mstar.placement import Placed


@dataclass(frozen=True, slots=True)
class Inlet:
    """A stream of the family, as its consumer takes it."""

    edge: StreamingGraphEdge
    live: bool  # the client may feed it
    makers: frozenset[str]  # partitions that feed it; where one of them runs, the client does not


@dataclass(frozen=True, slots=True)
class Site:
    """A node of a walk, as it is scheduled."""

    component: str  # qualified
    depth: int  # how far down the request it lies
    sliced: bool  # its batches are cut to a slice of time


@dataclass(frozen=True, slots=True)
class Hosted:
    """One family on one worker; shared by all its sessions."""

    name: str
    worker: str
    placed: Placed
    components: Mapping[str, Component]  # those that run here
    tasks: Mapping[str, Task]
    silent: frozenset[str]  # tasks that end by themselves and sound nowhere
    live: Mapping[str, LiveInput]
    inlets: Mapping[tuple[str, str], Inlet]  # (stream, partition)
    ports: Mapping[tuple[str, str], str]  # (partition, streaming input) → stream
    feeds: Mapping[str, tuple[tuple[str, str], ...]]  # partition → the (stream, partition)s that its walks feed
    emits: Mapping[str, Emit]
    walks: Mapping[tuple[str, str], WalkPlan]
    sites: Mapping[tuple[str, str], tuple[Site, ...]]  # (partition, walk) → its nodes
    touched: Mapping[str, tuple[str, ...]]  # partition → those whose nodes may become able, or unable, by its firings
    last: frozenset[tuple[str, str]]  # (partition, walk) after which the partition is done


def qualified(family: str, component: str) -> str:
    """The name of a component among those of all families of a worker."""
    return f"{family}/{component}"


def host(family: str, graph: Graph, placed: Placed, worker: str) -> Hosted:
    """What `worker` needs to know of a checked graph that is served under the name `family`."""
    plan = compile_graph(graph)
    used = placed.components(worker)
    components = {each.name: each for each in graph.components}
    depth = _depths(graph)
    edges = [
        edge for partition in graph.partitions for walk in partition.walks for _, edge in section_edges(walk.section)
    ]
    sounding = {
        partition.name
        for partition in graph.partitions
        for walk in partition.walks
        for _, edge in section_edges(walk.section)
        if isinstance(edge, Emit) and edge.modality == "audio"
    }
    return Hosted(
        name=family,
        worker=worker,
        placed=placed,
        components={name: each for name, each in components.items() if name in used},
        tasks={task.name: task for task in graph.tasks},
        silent=frozenset(task.name for task in graph.tasks if not task.standing and sounding.isdisjoint(task.start)),
        live={source.name: source for source in graph.live},
        inlets={
            key: Inlet(stream.edge, CLIENT in stream.producers, frozenset(stream.producers) - {CLIENT})
            for key, stream in plan.streams.items()
        },
        ports={(stream.edge.partition, stream.input): stream.edge.name for stream in plan.streams.values()},
        feeds={
            partition.name: tuple(key for key, stream in plan.streams.items() if partition.name in stream.producers)
            for partition in graph.partitions
        },
        emits={edge.name: edge for edge in edges if isinstance(edge, Emit)},
        walks=plan.walks,
        sites={
            key: tuple(
                Site(
                    qualified(family, node.component),
                    depth[node.component],
                    components[node.component].engine != "kv",
                )
                for node in walk.nodes
            )
            for key, walk in plan.walks.items()
        },
        touched=_touched(plan),
        last=frozenset(
            (partition.name, walk.name) for partition in graph.partitions for walk in partition.walks if not walk.then
        ),
    )


def _touched(plan: GraphPlan) -> dict[str, tuple[str, ...]]:
    """A firing takes from the streams that end in its partition, fills those that it feeds, and uses up credit."""
    partitions = {partition for partition, _ in plan.walks}
    shared: list[set[str]] = [
        {*stream.producers, stream.edge.partition} & partitions for stream in plan.streams.values()
    ]
    sounding: dict[str, set[str]] = {}
    for (partition, _), walk in plan.walks.items():
        for node in walk.nodes:
            for emit in node.emits:
                sounding.setdefault(emit.name, set()).add(partition)
    shared += sounding.values()
    return {
        one: tuple(sorted({one}.union(*(together for together in shared if one in together)))) for one in partitions
    }


def _depths(graph: Graph) -> dict[str, int]:
    """Partitions in the order of their streams, nodes in order inside a walk: larger is nearer to the client."""
    feeds: dict[str, set[str]] = {partition.name: set() for partition in graph.partitions}
    for partition in graph.partitions:
        for walk in partition.walks:
            for _, edge in section_edges(walk.section):
                if isinstance(edge, StreamingGraphEdge) and edge.partition != partition.name:
                    feeds[edge.partition].add(partition.name)
    stages: dict[str, int] = {}

    def stage(name: str, path: frozenset[str]) -> int:
        if name not in stages:
            stages[name] = 1 + max((stage(source, path | {name}) for source in feeds[name] - path), default=0)
        return stages[name]

    depth: dict[str, int] = {}
    for partition in graph.partitions:
        first = stage(partition.name, frozenset({partition.name})) * 100
        for walk in partition.walks:
            for place, node in enumerate(section_nodes(walk.section)):
                depth[node.runs] = max(depth.get(node.runs, 0), first + place)
    return depth
