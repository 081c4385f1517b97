"""Refuses a wrong graph at load, with one sentence that names the culprit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mstar.errors import GraphError
from mstar.graph.declare import Emit, Graph, GraphEdge, Keep, LiveInput, StreamingGraphEdge, Task, Walk
from mstar.graph.outline import Outline, outline
from mstar.graph.streams import CLIENT, Stream, section_edges, section_nodes, streaming_ports, streams_of
from mstar.streaming.policies import rule

Key = tuple[str, str]
"""(partition, walk) or (stream, partition)."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A graph with its walks outlined and its streams collected."""

    graph: Graph
    streams: Mapping[Key, Stream]
    walks: Mapping[Key, Walk]
    outlines: Mapping[Key, Outline]


def check(graph: Graph) -> None:
    """Raises GraphError for the first thing that is wrong."""
    _check_names(graph)
    streams = streams_of(graph)
    outlines = {}
    walks = {}
    for partition in graph.partitions:
        ports = streaming_ports(streams, partition.name)
        for walk in partition.walks:
            walks[(partition.name, walk.name)] = walk
            outlines[(partition.name, walk.name)] = outline(partition.name, walk, ports)
    read = _Read(graph, {stream.key: stream for stream in streams}, walks, outlines)
    _check_components(read)
    _check_walks(read)
    _check_emits(read)
    _check_streams(read)
    for live in graph.live:
        _check_live(read, live)
    reached: set[Key] = set()
    for task in graph.tasks:
        reached.update(_check_task(read, task))
    for key in walks:
        if key not in reached:
            raise GraphError(f"walk {'.'.join(key)} is reached by no task")


# -------------------------------------------------------------------------------------------------------------- words


def _check_names(graph: Graph) -> None:
    _distinct("component", (component.name for component in graph.components))
    _distinct("partition", (partition.name for partition in graph.partitions))
    _distinct("task", (task.name for task in graph.tasks))
    _distinct("live input", (live.name for live in graph.live))
    for partition in graph.partitions:
        _distinct(f"partition {partition.name}: walk", (walk.name for walk in partition.walks))
        if not partition.walks:
            raise GraphError(f"partition {partition.name} has no walks")


def _distinct(what: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if not name:
            raise GraphError(f"{what} without a name")
        if count > 1:
            raise GraphError(f"{what} {name} is declared {count} times")


def _check_components(read: _Read) -> None:
    known = {component.name: component for component in read.graph.components}
    for component in known.values():
        module, colon, factory = component.submodule.partition(":")
        if not (module and colon and factory):
            raise GraphError(f"component {component.name}: submodule {component.submodule!r} is not module:factory")
    used = set()
    for (partition, name), walk in read.walks.items():
        for node in section_nodes(walk.section):
            used.add(node.runs)
            component_of = known.get(node.runs)
            if component_of is None:
                raise GraphError(f"walk {partition}.{name}: node {node.runs} is no component of the graph")
            if node.prompt and component_of.engine != "kv":
                raise GraphError(f"walk {partition}.{name}: node {node.name} has a prompt, but no KV cache")
    for name in known:
        if name not in used:
            raise GraphError(f"component {name} is used by no walk")


def _check_walks(read: _Read) -> None:
    for (partition, name), walk in read.walks.items():
        if walk.then and (partition, walk.then) not in read.walks:
            raise GraphError(f"walk {partition}.{name} goes on with {walk.then}, which is no walk of its partition")
        plan = read.outlines[(partition, name)]
        for source in plan.sources():
            for edge in plan.edges(source):
                if isinstance(edge, GraphEdge) and not edge.to and not _taken(plan, source, edge.name):
                    raise GraphError(f"{plan.where}: nothing takes {edge.name} of {plan.title(source)}")


def _taken(plan: Outline, source: object, name: str) -> bool:
    return any(gift.source == source and gift.name == name for gift in plan.gifts)


def _check_emits(read: _Read) -> None:
    known: dict[str, Emit] = {}
    for (partition, name), walk in read.walks.items():
        for owner, edge in section_edges(walk.section):
            if not isinstance(edge, Emit):
                continue
            other = known.setdefault(edge.name, edge)
            where = f"walk {partition}.{name}: {owner} emits {edge.name}"
            if other.modality != edge.modality:
                raise GraphError(f"{where} as {edge.modality}, elsewhere it is {other.modality}")
            if other.window != edge.window:
                raise GraphError(f"{where} with window {edge.window}, elsewhere it is {other.window}")
            if edge.window is not None and edge.window < 1:
                raise GraphError(f"{where} with window {edge.window}, which would never open")


# ------------------------------------------------------------------------------------------------------------ streams


def _check_streams(read: _Read) -> None:
    partitions = {partition.name: partition for partition in read.graph.partitions}
    ends: dict[tuple[str, str, str], str] = {}
    for (name, partition), stream in read.streams.items():
        edge = stream.edge
        what = f"stream {name}"
        if partition not in partitions:
            raise GraphError(f"{what} ends in partition {partition}, which the graph does not have")
        nodes = [node for walk in partitions[partition].walks for node in section_nodes(walk.section)]
        uses = [node for node in nodes if node.name == edge.to]
        if not uses:
            raise GraphError(f"{what} ends in node {edge.to}, which partition {partition} does not have")
        if not any(stream.input in node.inputs for node in uses):
            raise GraphError(f"{what} ends in input {stream.input}, which node {edge.to} of {partition} does not have")
        if partition in stream.producers:
            raise GraphError(f"{what} ends in the partition that feeds it, {partition}")
        if edge.bound < rule(edge.policy).largest:
            raise GraphError(
                f"{what} has a bound of {edge.bound}, less than a chunk of {rule(edge.policy).largest} items"
            )
        port = (partition, edge.to, stream.input)
        if ends.setdefault(port, name) != name:
            raise GraphError(f"streams {ends[port]} and {name} end in one input, {stream.input} of node {edge.to}")
    for (partition, name), walk in read.walks.items():
        feeders: dict[Key, str] = {}
        for owner, out in section_edges(walk.section):
            if isinstance(out, StreamingGraphEdge):
                first = feeders.setdefault((out.name, out.partition), owner)
                if first != owner:
                    raise GraphError(f"walk {partition}.{name}: {first} and {owner} both feed stream {out.name}")


def _check_live(read: _Read, live: LiveInput) -> None:
    for edge in live.edges:
        if edge.name != live.name:
            raise GraphError(f"live input {live.name} has an edge called {edge.name}, not as its stream")
    nodes = {component.name for component in read.graph.components}
    for node in live.slices:
        if node not in nodes:
            raise GraphError(f"live input {live.name} gives slices to node {node}, which the graph does not have")
    if live.history < (1 if live.slices else 0):
        raise GraphError(f"live input {live.name} keeps a history of {live.history} items, too few for slices")
    if live.slices and live.scope != "session":
        raise GraphError(f"live input {live.name} belongs to a request, so nothing can look back at it")
    if not live.edges and not live.slices:
        raise GraphError(f"live input {live.name} goes nowhere")


# -------------------------------------------------------------------------------------------------------------- tasks


def _check_task(read: _Read, task: Task) -> set[Key]:
    """Returns the walks that the task reaches."""
    chains = {}
    for partition, first in task.start.items():
        if not any(partition == known.name for known in read.graph.partitions):
            raise GraphError(f"task {task.name} starts partition {partition}, which the graph does not have")
        if (partition, first) not in read.walks:
            raise GraphError(f"task {task.name} starts walk {first}, which partition {partition} does not have")
        chains[partition] = list(_chain(read, partition, first))
    if not chains:
        raise GraphError(f"task {task.name} starts no partition")
    _distinct(f"task {task.name}: input", task.inputs)
    used = set()
    for chain in chains.values():
        used |= _check_inputs(read, task, chain)
    for name in task.inputs:
        if name not in used:
            raise GraphError(f"task {task.name} takes input {name}, which none of its walks has")
    _check_sources(read, task, chains)
    return {key for chain in chains.values() for key in chain}


def _chain(read: _Read, partition: str, first: str) -> Iterator[Key]:
    """The walks of one partition from `first` on, each once."""
    seen = set()
    name = first
    while name and name not in seen:
        seen.add(name)
        yield partition, name
        name = read.walks[(partition, name)].then


def _check_inputs(read: _Read, task: Task, chain: list[Key]) -> set[str]:
    """Every input of every walk has a value: from the task, or kept by a walk before it. Returns those it takes."""
    kept: set[str] = set()
    needed: set[str] = set()
    for key in chain:
        plan = read.outlines[key]
        for link in plan.links:
            if link.source is not None:
                continue
            needed.add(link.name)
            if link.name not in kept and link.name not in task.inputs:
                looped = any(
                    other.back and (other.node, other.input) == (link.node, link.input) for other in plan.links
                )
                what = "no first value for its loop" if looped else "no value"
                node = plan.nodes[link.node].name
                raise GraphError(
                    f"{plan.where}: input {link.name} of node {node} has {what}: task {task.name} does not take it "
                    "and no earlier walk keeps it"
                )
        kept |= {edge.name for _, edge in section_edges(read.walks[key].section) if isinstance(edge, Keep)}
    return needed


def _check_sources(read: _Read, task: Task, chains: Mapping[str, list[Key]]) -> None:
    """Every stream that a walk of the task waits for has exactly one producer in it."""
    producers: dict[Key, set[str]] = {}
    for partition, chain in chains.items():
        for key in chain:
            for _, edge in section_edges(read.walks[key].section):
                if isinstance(edge, StreamingGraphEdge):
                    producers.setdefault((edge.name, edge.partition), set()).add(partition)
    scopes = {live.name: live.scope for live in read.graph.live}
    for (name, partition), stream in read.streams.items():
        nodes = [node for key in chains.get(partition, []) for node in read.outlines[key].nodes]
        if not any(node.name == stream.edge.to and stream.input in node.inputs for node in nodes):
            continue
        found = sorted(producers.get((name, partition), ()))
        live = CLIENT in stream.producers
        if live and (not found or scopes[name] == "session"):
            found.append("the client")
        if len(found) != 1:
            what = f"is fed by {' and '.join(found)}" if found else "is fed by nothing"
            raise GraphError(
                f"task {task.name}: stream {name}, which node {stream.edge.to} of {partition} reads, {what}"
            )
