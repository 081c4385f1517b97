"""Whatever the walk, and in whatever order its nodes complete and chunks arrive, what leaves it is the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from mstar.graph.cursor import Cursor, Delivery, Kept
from mstar.graph.declare import GraphNode
from mstar.graph.plan import WalkPlan, compile_graph
from tests.property.interpreter import Interpreter
from tests.property.sections import RandomWalk, random_walks


class Run:
    """A walk on a cursor whose nodes complete in a random order. `left` as the interpreter's, `fired` likewise."""

    def __init__(self, walk: RandomWalk, plan: WalkPlan, random: Random) -> None:
        self.walk, self.plan, self.random = walk, plan, random
        self.cursor = Cursor(plan)
        self.left: dict[str, list[Any]] = {}
        self.fired = {node.name: 0 for node in plan.nodes}
        self.chunks = {port: list(pieces) for port, pieces in walk.chunks.items()}
        self.inputs = list(plan.inputs)
        self.busy: dict[int, Mapping[str, Any]] = {}
        while options := self.options():
            early = [("chunk", port) for port, pieces in self.chunks.items() if pieces and random.random() < 0.05]
            self.step(*random.choice(options + early))

    def options(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = [("put", name) for name in self.inputs]
        found += [("take", node) for node in self.cursor.ready()] + [("complete", node) for node in self.busy]
        wanted = [(self.plan.component(node), port) for node, ports in self.cursor.wants() for port in ports]
        return found + [("chunk", port) for port in wanted]

    def step(self, what: str, which: Any) -> None:
        match what:
            case "put":
                self.inputs.remove(which)
                self.cursor.put(which, self.walk.inputs[which])
            case "chunk":
                node = next(each.id for each in self.plan.nodes if each.name == which[0])
                self.cursor.chunk(node, which[1], self.chunks[which].pop(0))
            case "take":
                self.busy[which] = self.cursor.take(which).inputs
                if self.random.random() < 0.1:
                    del self.busy[which]
                    self.cursor.untake(which)
            case "complete":
                name = self.plan.component(which)
                outputs, stop = self.walk.function(name, self.busy.pop(which))
                self.fired[name] += 1
                self.note(self.cursor.complete(which, outputs, stop))
        self.note(self.cursor.flush())

    def note(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            name = delivery.name if isinstance(delivery, Kept) else delivery.edge.name
            self.left.setdefault(name, []).append(delivery.value)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_walks(), st.randoms(use_true_random=False))
def test_any_order_gives_what_plain_evaluation_gives(walk: RandomWalk, random: Random) -> None:
    if isinstance(walk.section, GraphNode) and all((walk.section.name, x) in walk.chunks for x in walk.section.inputs):
        return  # stands for a loop around it, which the interpreter does not know
    plan = compile_graph(walk.graph()).walk("p", "w")
    assert set(plan.inputs) <= set(walk.inputs)
    plain = Interpreter(walk.section, walk.function, walk.inputs, walk.chunks)
    ran = Run(walk, plan, random)
    assert ran.cursor.done
    assert ran.fired == plain.fired
    assert ran.left == plain.left
    event(f"loops {len(plan.loops) - 1}")
    event(f"firings {sum(ran.fired.values()) // 10 * 10}")
