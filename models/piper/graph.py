"""Cutting pieces out of an ONNX graph by tensor names, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from mstar.errors import WeightsError


@dataclass(frozen=True, slots=True)
class Wiring:
    """Who makes and who reads each tensor of a graph."""

    graph: GraphProto
    producer: Mapping[str, NodeProto]
    consumers: Mapping[str, Sequence[NodeProto]]
    initializers: Mapping[str, TensorProto]
    dynamic: frozenset[str]  # tensors that depend on an input of the graph

    @classmethod
    def of(cls, graph: GraphProto) -> Wiring:
        initializers = {t.name: t for t in graph.initializer}
        producer: dict[str, NodeProto] = {}
        consumers: dict[str, list[NodeProto]] = {}
        dynamic = {i.name for i in graph.input if i.name not in initializers}
        for node in graph.node:  # ONNX demands topological order
            for name in node.output:
                producer[name] = node
            for name in node.input:
                consumers.setdefault(name, []).append(node)
            if node.op_type.startswith("Random") or any(name in dynamic for name in node.input):
                dynamic.update(node.output)
        return cls(graph, producer, consumers, initializers, frozenset(dynamic))

    def ancestors(self, outputs: Iterable[str], stop: frozenset[str] = frozenset()) -> set[str]:
        """Names of all tensors that `outputs` are made from, themselves included; not looking behind `stop`."""
        seen: set[str] = set()
        open_names = list(outputs)
        while open_names:
            name = open_names.pop()
            if name in seen or not name:
                continue
            seen.add(name)
            if name not in stop and name in self.producer:
                open_names.extend(self.producer[name].input)
        return seen

    def only_consumer(self, name: str) -> NodeProto:
        nodes = self.consumers.get(name, ())
        if len(nodes) != 1:
            raise WeightsError(f"graph: tensor {name} has {len(nodes)} consumers, expected one")
        return nodes[0]

    def walk(self, start: str, op_type: str) -> NodeProto:
        """The first node of `op_type` down the chain of only consumers that begins at tensor `start`."""
        node = self.only_consumer(start)
        while node.op_type != op_type:
            node = self.only_consumer(node.output[0])
        return node

    def boundary(self, outputs: Sequence[str], source: str) -> tuple[str, ...]:
        """Dynamic tensors that the part between `source` and `outputs` reads from outside that part, `source` first."""
        downstream = {source}
        for node in self.graph.node:
            if any(name in downstream for name in node.input):
                downstream.update(node.output)
        inside = self.ancestors(outputs, frozenset({source})) & downstream
        read = {name for node in self.graph.node if inside & set(node.output) - {source} for name in node.input}
        others = sorted(name for name in read - downstream if name in self.dynamic)
        return (source, *others)


def attributes(node: NodeProto) -> dict[str, object]:
    """A node's attributes as Python values (list of int, int, float, bytes …)."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def value_of(name: str, kind: int = TensorProto.FLOAT, rank: int | None = None) -> onnx.ValueInfoProto:
    """A graph input or output; the sizes of its `rank` axes are open, None leaves the rank open, too."""
    return helper.make_tensor_value_info(name, kind, None if rank is None else [None] * rank)


def subgraph(
    wiring: Wiring,
    model: ModelProto,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    name: str,
) -> ModelProto:
    """The part of `model` between `inputs` and `outputs` (tensor names of its graph) as a model of its own."""
    stop = frozenset(i.name for i in inputs)
    needed = wiring.ancestors([o.name for o in outputs], stop)
    nodes = [n for n in wiring.graph.node if needed.intersection(n.output) and not stop.issuperset(n.output)]
    weights = [t for t in wiring.graph.initializer if t.name in needed and t.name not in stop]
    read = {i for n in nodes for i in n.input if i} - {o for n in nodes for o in n.output} - {t.name for t in weights}
    if unfed := sorted(read - stop):
        raise WeightsError(f"graph: {name} also reads {', '.join(unfed)}")
    return assemble(nodes, inputs, outputs, weights, model, name)


def assemble(
    nodes: Sequence[NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[TensorProto],
    like: ModelProto,
    name: str,
) -> ModelProto:
    """A model from parts, with the opset of `like`."""
    graph = helper.make_graph(list(nodes), name, list(inputs), list(outputs), list(weights))
    made = helper.make_model(graph, opset_imports=list(like.opset_import))
    made.ir_version = like.ir_version
    return made
