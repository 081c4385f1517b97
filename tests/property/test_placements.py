"""Wherever its nodes run, and in whatever order messages arrive, a walk gives what plain evaluation gives."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from mstar.client import Emission, RequestEnded
from mstar.graph.declare import GraphNode
from tests.property.interpreter import Interpreter
from tests.property.placed import FAMILY, Placed, ended
from tests.property.sections import RandomWalk, random_walk

SEEDS = st.integers(0, 2**32)
"""Random walks and orders from seeds: drawing each step of them would take most of the time."""


def bare(walk: RandomWalk) -> bool:
    """Stands for a loop around it, which the interpreter does not know."""
    return isinstance(walk.section, GraphNode) and all(
        (walk.section.name, x) in walk.chunks for x in walk.section.inputs
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS)
def test_any_placement_and_order_gives_what_plain_evaluation_gives(seed: int) -> None:
    random = Random(seed)
    walk = ended(random_walk(random))
    if bare(walk):
        return
    plain = Interpreter(walk.section, walk.function, walk.inputs, walk.chunks)
    system = Placed(walk, random)
    baseline = system.census()
    session = system.client.open_soon(FAMILY)
    system.run()
    task = system.graph.tasks[0]
    requests = [session.start("run", {name: walk.inputs[name] for name in task.inputs}) for _ in range(2)]
    for request in requests:
        system.feed(request, 6)
    for request in requests:
        events = request.drain()
        left: dict[str, list[Any]] = {}
        for each in events:
            if isinstance(each, Emission):
                left.setdefault(each.output.removeprefix("z_"), []).append(each.value)
        [end] = [each for each in events if isinstance(each, RequestEnded)]
        assert end.status == "done", end
        assert left == plain.left
        fired = [node for name, node in system.order if name == request.id and not node.startswith("z_")]
        assert {node: fired.count(node) for node in plain.fired} == plain.fired
    assert system.shelf.made == system.shelf.taken
    system.client.close_session(session)
    assert system.census() == baseline
    event(f"workers {len(system.workers)}")
    event(f"values between workers {min(system.shelf.made // 20 * 20, 100)}")


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS)
def test_interrupts_and_disconnects_at_any_moment_leave_nothing(seed: int) -> None:
    random = Random(seed)
    walk = ended(random_walk(random))
    if bare(walk):
        return
    system = Placed(walk, random)
    baseline = system.census()
    for _ in range(3):
        session = system.client.open_soon(FAMILY)
        system.run()
        inputs = {name: walk.inputs[name] for name in system.graph.tasks[0].inputs}
        requests = [session.start("run", inputs) for _ in range(random.randint(1, 3))]
        for request in requests:
            for (_, port), pieces in walk.chunks.items():
                values = [piece.value for piece in pieces if piece.n_new]
                for index, value in enumerate(values[: random.randint(0, len(values))]):
                    request.feed(port, index, value)
        for _ in range(random.randrange(80)):
            system.turn()
        for request in requests:
            if random.random() < 0.6:
                request.interrupt()
            for _ in range(random.randrange(20)):
                system.turn()
        system.client.close_session(session)
    assert system.census() == baseline
    assert system.shelf.made == system.shelf.taken + system.shelf.freed
    event(f"freed unread {min(system.shelf.freed, 10)}")
