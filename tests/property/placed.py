"""A random walk as a whole family on several workers, whose messages come in any order that the bus may give them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from mstar.bus.wire import Envelope, decode, encode
from mstar.client.client import Client, Request
from mstar.clock import ManualClock
from mstar.conductor.conductor import Conductor
from mstar.engine.api import Completed, Deferred, Firing, Outcome, Partial
from mstar.graph.declare import (
    Component,
    DynamicLoop,
    Edge,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    LiveInput,
    Loop,
    Parallel,
    Partition,
    Section,
    Sequential,
    StreamingGraphEdge,
    Task,
    Walk,
)
from mstar.messages import Message, WorkerReady
from mstar.placement import Placement, placement_of
from mstar.tensors import Value
from mstar.transport.local import LocalTransport, Shelf
from mstar.worker.executor import InlineExecutor
from mstar.worker.hosted import host, qualified
from mstar.worker.worker import Worker
from tests.property.interpreter import nodes_of
from tests.property.sections import RandomWalk

FAMILY = "g"


def ended(walk: RandomWalk) -> RandomWalk:
    """The walk with every stream known to end at its last item: when its end comes else is a matter of time."""
    chunks = {}
    for port, pieces in walk.chunks.items():
        if len(pieces) > 1 and not pieces[-1].n_new:
            chunks[port] = [*pieces[:-2], replace(pieces[-2], segment_final=True, final=True)]
        else:
            chunks[port] = pieces
    return RandomWalk(walk.section, walk.inputs, chunks)


def family_of(walk: RandomWalk, random: Random) -> Graph:
    """The walk as partition `p`. What leaves it goes to the client, straight or by way of a partition of its own."""
    streamed = {name: random.random() < 0.5 for name in _leaving(walk.section)}
    components = {node.name: node.name for node in nodes_of(walk.section)}
    for name in components:
        if random.random() < 0.3:  # two uses of one component, which may be placed apart
            components[name] = random.choice(list(components))
    uses = {name: components[components[name]] if name != components[name] else name for name in components}
    section = _rewritten(walk.section, streamed, uses)
    sinks = tuple(
        Partition(f"out_{name}", (Walk("w", GraphNode(f"z_{name}", (name,), (Emit(f"z_{name}", "signal"),))),))
        for name, through in streamed.items()
        if through
    )
    names = {*uses.values(), *(f"z_{name}" for name, through in streamed.items() if through)}
    inputs = tuple({port for node in nodes_of(walk.section) for port in node.inputs if port in walk.inputs})
    return Graph(
        FAMILY,
        tuple(Component(name, "none:none") for name in sorted(names)),
        (Partition("p", (Walk("w", section),)), *sinks),
        (Task("run", {partition.name: "w" for partition in (Partition("p", ()), *sinks)}, inputs),),
        tuple(
            LiveInput(port, (StreamingGraphEdge(port, "p", node),), scope="request", full="wait")
            for node, port in walk.chunks
        ),
    )


def _edges(section: Section) -> list[Edge]:
    match section:
        case GraphNode(outputs=outputs):
            return list(outputs)
        case Sequential(sections=members) | Parallel(sections=members):
            return [edge for member in members for edge in _edges(member)]
        case Loop() | DynamicLoop():
            return [*_edges(section.section), *section.outputs, *section.accumulated]


def _leaving(section: Section) -> list[str]:
    return sorted({edge.name for edge in _edges(section) if not isinstance(edge, GraphEdge)})


def _rewritten(section: Section, streamed: Mapping[str, bool], uses: Mapping[str, str]) -> Section:
    def out(edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
        return tuple(
            edge
            if isinstance(edge, GraphEdge)
            else StreamingGraphEdge(edge.name, f"out_{edge.name}", f"z_{edge.name}", bound=3)
            if streamed[edge.name]
            else Emit(edge.name, "signal")
            for edge in edges
        )

    match section:
        case GraphNode():
            component = uses[section.name] if uses[section.name] != section.name else ""
            return replace(section, outputs=out(section.outputs), component=component)
        case Sequential(sections=members) | Parallel(sections=members):
            return replace(section, sections=tuple(_rewritten(member, streamed, uses) for member in members))
        case Loop() | DynamicLoop():
            return replace(
                section,
                section=_rewritten(section.section, streamed, uses),
                outputs=out(section.outputs),
                accumulated=out(section.accumulated),
            )


def placement_for(graph: Graph, random: Random) -> Placement:
    """Every node anywhere; some components have replicas."""
    ranks = [f"r{index}" for index in range(random.randint(1, 4))]
    nodes: dict[str, Any] = {}
    for partition in graph.partitions:
        for walk in partition.walks:
            for node in nodes_of(walk.section):
                nodes[node.name] = random.sample(ranks, random.randint(1, len(ranks)))
                if random.random() < 0.7:
                    nodes[node.name] = random.choice(ranks)
    return placement_of({"ranks": {rank: {} for rank in ranks}, "families": {FAMILY: {"nodes": nodes}}})


class Scripted:
    """An engine that does what the walk's function says. A component's state counts its firings, and moves with it."""

    def __init__(self, system: Placed) -> None:
        self.system = system
        self.states: dict[tuple[str, str], int] = {}

    def step(self, firings: Sequence[Firing]) -> list[Outcome]:
        return [self._one(firing) for firing in firings]

    def _one(self, firing: Firing) -> Outcome:
        draw = self.system.random.random()
        if draw < 0.1:
            return Deferred("no memory") if draw < 0.05 else Partial()
        key = (firing.request, firing.component)
        count = self.states.get(key, 0)
        assert count == self.system.fired.get(key, 0), "its state is here, and whole"
        self.states[key] = self.system.fired[key] = count + 1
        self.system.order.append((firing.request, firing.node))
        if firing.node.startswith("z_"):
            value = firing.inputs[firing.node[2:]]
            return Completed({firing.node: value} if firing.spans[firing.node[2:]].n_new else {}, stop=False)
        outputs, stop = self.system.walk.function(firing.node, firing.inputs)
        return Completed(outputs, stop)

    def end_request(self, request: str) -> None:
        for key in [key for key in self.states if key[0] == request]:
            del self.states[key]

    def end_session(self, session: str) -> None:
        for key in [key for key in self.states if key[0].startswith(f"{session}.")]:
            del self.states[key]

    def give(self, request: str, component: str) -> Value:
        return {"count": self.states.pop((request, component), 0)}

    def take(self, request: str, component: str, image: Any) -> Deferred | None:
        if self.system.random.random() < 0.2:
            return Deferred("no memory for the image")
        assert (request, component) not in self.states
        self.states[(request, component)] = image["count"]
        return None

    def preempt(self, request: str, component: str) -> int:
        return 0

    def census(self) -> Mapping[str, int]:
        return {"states": len(self.states)}

    def counters(self) -> Mapping[str, int]:
        return {}


class Wire:
    """A party's end of a bus that keeps the order of messages between two parties, and no other."""

    def __init__(self, name: str, queues: dict[tuple[str, str], deque[bytes]]) -> None:
        self.name = name
        self.arrived: list[Message] = []
        self._queues = queues

    def send(self, to: str, message: Message) -> None:
        self._queues.setdefault((self.name, to), deque()).append(encode(Envelope(self.name, 1, message)))

    def receive(self) -> Sequence[Message]:
        taken, self.arrived = self.arrived, []
        return taken

    def on_arrival(self, wake: Callable[[], None]) -> None:
        pass

    def forget(self, peer: str) -> None:
        pass

    def close(self) -> None:
        pass


class Placed:
    """Conductor, workers and a client, turned in a random order."""

    def __init__(self, walk: RandomWalk, random: Random) -> None:
        self.walk, self.random = walk, random
        self.fired: dict[tuple[str, str], int] = {}
        self.order: list[tuple[str, str]] = []
        self.graph = family_of(walk, random)
        self.placement = placement_for(self.graph, random)
        placed = self.placement.place(FAMILY, self.graph)
        self.shelf = Shelf()
        self.queues: dict[tuple[str, str], deque[bytes]] = {}
        self.conductor = Conductor({FAMILY: self.graph}, {FAMILY: placed})
        self.ends = {name: Wire(name, self.queues) for name in ("conductor", "client", *placed.workers)}
        self.client = Client(self.ends["client"])
        self.clock = ManualClock()
        self.workers: dict[str, Worker] = {}
        names = [qualified(FAMILY, component.name) for component in self.graph.components]
        for name in placed.workers:
            engine = Scripted(self)
            self.workers[name] = Worker(
                name,
                {FAMILY: host(FAMILY, self.graph, placed, name)},
                dict.fromkeys(names, engine),
                dict.fromkeys(names, 3),
                self.ends[name],
                self.clock,
                InlineExecutor(),
                LocalTransport(self.shelf),
            )
            self.ends[name].send("conductor", WorkerReady(name, FAMILY, 0))
        self.run()

    def turn(self) -> bool:
        """Deliver one message or run one worker; False if there is nothing to do."""
        pairs = [pair for pair, queue in self.queues.items() if queue]
        choices: list[Any] = [*pairs, *self.workers.values()]
        self.random.shuffle(choices)
        for choice in choices:
            if isinstance(choice, Worker):
                choice.collect()
                if choice.schedule() or any(self.queues.values()) != bool(pairs):
                    return True
            else:
                self._deliver(*choice)
                return True
        return False

    def _deliver(self, sender: str, to: str) -> None:
        message = decode(self.queues[(sender, to)].popleft()).body
        end = self.ends[to]
        if to == "conductor":
            for receiver, answer in self.conductor.handle(message, 0.0):
                end.send(receiver, answer)
        elif to == "client":
            end.arrived.append(message)
            self.client.receive()
        else:
            self.workers[to].handle(message)

    def run(self) -> None:
        idle = 0
        for _ in range(200_000):
            idle = 0 if self.turn() else idle + 1
            if idle > 3:
                waiting = [worker for worker in self.workers.values() if len(worker._memory)]
                if not waiting:
                    return
                for worker in waiting:  # some became free
                    worker._memory.offer_again()
                idle = 0
        raise RuntimeError("still moving")

    def feed(self, request: Request, turns: int) -> None:
        """All items in a random order among the streams, whose ends are known before; other things happen between."""
        waiting = {
            port: [piece.value for piece in pieces if piece.n_new] for (_, port), pieces in self.walk.chunks.items()
        }
        sent = dict.fromkeys(waiting, 0)
        for port, items in waiting.items():
            request.commit(port, len(items))
        while left := [port for port in waiting if sent[port] < len(waiting[port])]:
            port = self.random.choice(left)
            request.feed(port, sent[port], waiting[port][sent[port]])
            sent[port] += 1
            for _ in range(self.random.randrange(turns)):
                self.turn()
        self.run()

    def census(self) -> dict[str, Any]:
        """Of all workers, and of what is on the shelf."""
        self.run()
        told: dict[str, Any] = {"shelf": len(self.shelf.values)}
        for name in self.workers:
            self.client.ask_then("census", partial(told.__setitem__, name), of=name)
        self.run()
        return told
