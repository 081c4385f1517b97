"""What a worker tells of itself: its firings by node, its steps as distributions, and that a session is freed."""

from __future__ import annotations

import numpy as np

from mstar.graph.declare import (
    Component,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    LiveInput,
    Partition,
    Sequential,
    StreamingGraphEdge,
    Task,
    Walk,
)
from mstar.local import LocalSystem
from mstar.streaming.policies import LatestChunkPolicy
from mstar.trace import Record
from mstar.worker.measures import Distribution
from mstar.worker.tracing import KEPT, Tracing

TWICE = Graph(
    "twice",
    (Component("guide", "models.toy.nodes.rolling:guide"),),
    (
        Partition(
            "world",
            (
                Walk(
                    "roll",
                    Sequential(
                        (
                            GraphNode(
                                "first", ("latent",), (GraphEdge("other", "second", "latent"),), component="guide"
                            ),
                            GraphNode("second", ("latent",), (Emit("other", "signal"),), component="guide"),
                        )
                    ),
                ),
            ),
        ),
    ),
    (Task("roll", {"world": "roll"}, ("latent",)),),
)


LOOKING = Graph(
    "looking",
    (Component("guide", "models.toy.nodes.rolling:guide"),),
    (Partition("eye", (Walk("look", GraphNode("guide", ("latent",), (Emit("other", "signal"),))),)),),
    (Task("look", {"eye": "look"}, standing=True),),
    (LiveInput("camera", (StreamingGraphEdge("camera", "eye", "guide", LatestChunkPolicy(), input="latent"),)),),
)


def rolled(system: LocalSystem, *, trace: bool = False) -> tuple[str, list[Record]]:
    """A session in which the walk ran once → its name and what it was told while it ran."""
    session = system.open("twice", trace=trace)
    told: list[Record] = []
    session.on_trace = lambda traced: told.extend(Record(*row) for row in traced.records)
    session.start("roll", {"latent": np.ones(4, np.float32)})
    system.run()
    system.close(session)
    return session.id, told


def test_uses_of_one_component_are_told_apart() -> None:
    system = LocalSystem({"twice": TWICE})
    name, told = rolled(system, trace=True)
    assert [(record.component, record.node) for record in told] == [("guide", "first"), ("guide", "second")]
    kept = [Record(*row) for row in system.ask("trace", of="worker.main", session=name)]
    assert kept == told


def test_ended_sessions_are_remembered_and_others_are_not_shown() -> None:
    system = LocalSystem({"twice": TWICE})
    one, told = rolled(system)
    other, _ = rolled(system)
    assert told == []  # nobody asked for it while it ran
    for name in (one, other):
        rows = system.ask("trace", of="worker.main", session=name)
        assert [row[2] for row in rows] == [f"{name}.0"] * 2
    assert system.ask("trace", of="worker.main", session="nobody") == []


def test_memory_of_firings_is_bounded() -> None:
    system = LocalSystem({"twice": TWICE})
    tracing = Tracing("worker.main", system.bus.endpoint("spare"))
    assert tracing._kept.maxlen == KEPT


def test_steps_are_counted_once_by_node_and_by_size() -> None:
    system = LocalSystem({"twice": TWICE})
    sessions = [system.open("twice") for _ in range(3)]
    for session in sessions:
        session.start("roll", {"latent": np.ones(4, np.float32)})
    system.run()
    told = system.ask("measures", of="worker.main")
    [batches] = told["batches"]
    assert (batches["family"], batches["component"]) == ("twice", "guide")
    assert batches["sum"] == 6  # firings
    steps = {each["node"]: sum(each["counts"]) for each in told["steps"]}
    assert set(steps) == {"first", "second"}
    assert sum(steps.values()) == sum(batches["counts"]) == system.workers["worker.main"].steps


def test_streams_tell_what_waits_and_what_they_dropped_also_of_ended_requests() -> None:
    system = LocalSystem({"looking": LOOKING})
    session = system.open("looking")
    request = session.start("look", positions={"camera": 0})
    system.run()
    for index in range(5):
        session.feed("camera", index, np.full(4, float(index)))
    system.run()
    key = {"family": "looking", "stream": "camera", "partition": "eye"}
    assert system.ask("measures", of="worker.main")["streams"] == [{**key, "depth": 0, "dropped": 4}]
    request.interrupt()
    system.run()
    assert system.ask("measures", of="worker.main")["streams"] == [{**key, "depth": 0, "dropped": 4}]


def test_values_fall_into_the_first_bucket_that_holds_them() -> None:
    sizes = Distribution((1, 2, 4))
    for value in (1, 2, 3, 4, 5):
        sizes.add(value)
    assert sizes.told() == {"bounds": [1, 2, 4], "counts": [1, 1, 2, 1], "sum": 15.0}


def test_a_closed_session_is_reported_when_all_its_workers_have_freed_it() -> None:
    system = LocalSystem({"twice": TWICE})
    freed: list[str] = []
    system.client.on_freed = lambda name, _seconds: freed.append(name)
    session = system.open("twice")
    system.client.close_session(session)
    assert freed == []
    system.run()
    assert freed == [session.id]
    system.client.close_session(session)
    system.run()
    assert freed == [session.id]
