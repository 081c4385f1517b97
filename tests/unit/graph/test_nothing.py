"""Where a node puts nothing on an edge: its dependants are skipped for the pass, and the pass still ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mstar.graph.declare import DynamicLoop, Emit, GraphEdge, GraphNode, Keep, Loop, Parallel, Sequential
from tests.unit.graph.drive import Drive, chunk, plan_of


def test_nothing_leaves_and_the_dependants_are_skipped() -> None:
    section = Sequential(
        (
            GraphNode("a", ("x",), (GraphEdge("y", "b"), Emit("y", "signal"), Keep("y"), Emit("z", "signal"))),
            GraphNode("b", ("y",), (GraphEdge("w", "c"),)),
            GraphNode("c", ("w",), (Emit("w", "signal"),)),
        )
    )
    drive = Drive(plan_of(section), a=lambda x: {"y": None, "z": x}).put(x=1).run()
    assert drive.fired == ["a"]
    assert drive.left == [("client", "z", 1)]
    assert drive.done()


def test_a_join_with_nothing_on_one_side_is_skipped_whichever_comes_first() -> None:
    section = Parallel(
        (
            GraphNode("a", ("x",), (GraphEdge("l", "c"),)),
            GraphNode("b", ("x",), (GraphEdge("r", "c"),)),
            GraphNode("c", ("l", "r"), (Emit("o", "signal"),)),
        )
    )
    for order in (("a", "b"), ("b", "a")):
        drive = Drive(plan_of(section), a=lambda x: {}, b=lambda x: {"r": x}, c=lambda l, r: {}).put(x=1)  # noqa: E741
        for name in order:
            drive.fire(name)
        assert drive.ready() == []
        assert drive.done()


def test_a_pass_whose_head_yields_nothing_ends_and_the_next_chunk_fires_it_again() -> None:
    section = DynamicLoop(
        "listen",
        Sequential(
            (
                GraphNode("head", ("mic",), (GraphEdge("x", "tail"),)),
                GraphNode("tail", ("x",), (Emit("out", "signal"),)),
            )
        ),
        None,
        outputs=(Emit("out", "signal"),),
    )

    def head(mic: int) -> Mapping[str, Any]:
        return {"x": mic if mic % 3 == 0 else None}

    drive = Drive(plan_of(section, "head.mic"), head=head, tail=lambda x: {"out": -x})
    for index in range(8):
        drive.chunk("head", "mic", chunk(index, first=index))
        drive.run()
    assert drive.client("out") == [0, -3, -6]
    assert drive.iterations[-1] == 7
    drive.chunk("head", "mic", chunk(final=True, first=8))
    assert drive.done()
    assert drive.client("out") == [0, -3, -6, -6]  # the last value there was


def test_a_loop_that_is_fed_nothing_ends() -> None:
    section = Sequential(
        (
            DynamicLoop(
                "decode",
                GraphNode("llm", ("token",), (GraphEdge("token", "llm"), Emit("text", "text"))),
                100,
                outputs=(GraphEdge("token", "after"),),
            ),
            GraphNode("after", ("token",), (Emit("last", "signal"),)),
        )
    )

    def llm(token: int) -> Mapping[str, Any]:
        return {"token": token + 1 if token < 3 else None, "text": token}

    drive = Drive(plan_of(section), llm=llm, after=lambda token: {"last": token}).put(token=0).run()
    assert drive.client("text") == [0, 1, 2, 3]
    assert drive.client("last") == [3]
    assert drive.done()


def test_a_loop_whose_input_is_nothing_never_runs_and_gives_nothing() -> None:
    section = Sequential(
        (
            GraphNode("a", ("x",), (GraphEdge("y", "b"),)),
            Loop(
                "l",
                Sequential((GraphNode("b", ("y", "z"), (GraphEdge("z", "b"),)),)),
                5,
                outputs=(GraphEdge("z", "c"),),
            ),
            GraphNode("c", ("z",), (Emit("z", "signal"),)),
        )
    )
    drive = Drive(plan_of(section), a=lambda x: {}).put(x=1, z=0).run()
    assert drive.fired == ["a"]
    assert drive.left == []
    assert drive.done()


def test_an_unbounded_loop_ends_when_what_its_listener_needs_never_comes() -> None:
    """Also where the listener sits in an inner loop: no pass of either would ever fire anything."""
    listener = GraphNode("b", ("y", "s"), (Emit("o", "signal"),))
    inner = DynamicLoop("inner", listener, None)
    for body in (listener, inner, Loop("twice", inner, 2)):
        section = Sequential((GraphNode("a", ("x",), (GraphEdge("y", "b"),)), DynamicLoop("l", body, None)))
        drive = Drive(plan_of(section, "b.s"), a=lambda x: {}).put(x=1).run()
        assert drive.done()
        assert drive.left == []


def test_accumulated_holds_what_there_was() -> None:
    body = GraphNode("b", ("x",), (GraphEdge("x", "b"), Emit("odd", "signal")))
    section = Loop("l", body, 5, accumulated=(Keep("odd"),))
    drive = Drive(plan_of(section), b=lambda x: {"x": x + 1, "odd": x if x % 2 else None}).put(x=0).run()
    assert drive.left[-1] == ("kept", "odd", [1, 3])


def test_a_member_that_has_nothing_left_does_not_stop_the_other() -> None:
    body = Parallel(
        (
            GraphNode("a", ("x",), (GraphEdge("x", "a"), Emit("a", "signal"))),
            GraphNode("b", ("s",), (Emit("b", "signal"),)),
        )
    )
    drive = Drive(
        plan_of(DynamicLoop("l", body, None), "b.s"),
        a=lambda x: {"x": x + 1 if x < 2 else None, "a": x},
        b=lambda s: {"b": s},
    ).put(x=1)
    for index in range(5):
        drive.chunk("b", "s", chunk(index, first=index, final=index == 4))
        drive.run()
    assert drive.client("a") == [1, 2]
    assert drive.client("b") == [0, 1, 2, 3, 4]
    assert drive.done()


def test_a_walk_input_may_stay_without_a_value() -> None:
    section = Parallel((GraphNode("a", ("x",), (Emit("a", "signal"),)), GraphNode("b", ("y",), (Emit("b", "signal"),))))
    drive = Drive(plan_of(section), b=lambda y: {"b": y}).put(x=None, y=1).run()
    assert drive.left == [("client", "b", 1)]
    assert drive.done()
