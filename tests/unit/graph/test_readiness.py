"""When a node is ready: joins, sequences, queues, walks that run again."""

from __future__ import annotations

from typing import Any

import pytest

from mstar.errors import Rejected
from mstar.graph.cursor import Cursor
from mstar.graph.declare import DynamicLoop, Emit, GraphEdge, GraphNode, Keep, Parallel, Sequential, StreamingGraphEdge
from tests.unit.graph.drive import Drive, chunk, plan_of

CHAIN = Sequential(
    (
        GraphNode("encoder", ("image",), (GraphEdge("states", "llm"),)),
        GraphNode("llm", ("states",), (Emit("text", "text"),)),
    )
)
JOIN = Parallel(
    (
        GraphNode("left", ("x",), (GraphEdge("a", "join"),)),
        GraphNode("right", ("y",), (GraphEdge("b", "join"),)),
        GraphNode("join", ("a", "b"), (Emit("sum", "signal"),)),
    )
)


def chain() -> Drive:
    return Drive(plan_of(CHAIN), encoder=lambda image: {"states": image + 1}, llm=lambda states: {"text": states * 2})


def join() -> Drive:
    return Drive(
        plan_of(JOIN),
        left=lambda x: {"a": x},
        right=lambda y: {"b": y},
        join=lambda a, b: {"sum": a + b},
    )


def test_a_sequence_fires_one_after_the_other_and_again_after_clear() -> None:
    drive = chain()
    for _ in range(2):
        assert drive.ready() == []
        drive.put(image=1)
        assert drive.ready() == ["encoder"]
        drive.fire("encoder")
        assert drive.ready() == ["llm"]
        assert not drive.done()
        drive.fire("llm")
        assert drive.ready() == []
        assert drive.done()
        assert drive.client("text") == [4]
        drive.cursor.clear()
        drive.left.clear()
        assert not drive.done()


@pytest.mark.parametrize("order", [("left", "right"), ("right", "left")])
def test_a_join_waits_for_both_and_is_ready_once(order: tuple[str, str]) -> None:
    drive = join().put(x=1, y=2)
    assert set(drive.ready()) == {"left", "right"}
    drive.fire(order[0])
    assert drive.ready() == [order[1]]
    drive.fire(order[1])
    assert drive.ready() == ["join"]
    assert drive.run().client("sum") == [3]


def test_a_node_without_outputs_ends_the_walk() -> None:
    drive = Drive(plan_of(GraphNode("sink", ("x",))), sink=lambda x: {}).put(x=1)
    drive.fire("sink")
    assert drive.done()
    assert drive.left == []


def test_a_busy_node_is_not_ready_and_nobody_fires_it_twice() -> None:
    cursor = Cursor(plan_of(CHAIN))
    cursor.put("image", 1)
    assert cursor.can_take(0)
    cursor.take(0)
    assert not cursor.can_take(0)
    for wrong in (lambda: cursor.take(0), lambda: cursor.take(1), lambda: cursor.complete(1, {})):
        with pytest.raises(RuntimeError, match="is not"):
            wrong()
    cursor.complete(0, {"states": 1})
    with pytest.raises(RuntimeError, match="encoder is not busy"):
        cursor.complete(0, {"states": 1})


def test_a_firing_that_did_not_take_place_leaves_the_node_as_it_was() -> None:
    drive = Drive(plan_of(GraphNode("vad", ("mic",)), "vad.mic"), vad=lambda mic: {})
    drive.chunk("vad", "mic", chunk("a"))
    drive.chunk("vad", "mic", chunk("b"))
    before = drive.cursor.take(0)
    drive.cursor.untake(0)
    assert drive.cursor.take(0).inputs == before.inputs == {"mic": "a"}
    drive.cursor.complete(0, {})
    assert drive.cursor.take(0).inputs == {"mic": "b"}


def test_an_unknown_input_is_refused_and_changes_nothing() -> None:
    drive = chain()
    with pytest.raises(Rejected, match=r"walk p\.w has no input states"):
        drive.put(states=1)
    with pytest.raises(Rejected, match="node llm has no streaming input states"):
        drive.cursor.chunk(1, "states", chunk(1))
    assert drive.put(image=1).ready() == ["encoder"]


def test_an_output_that_the_graph_does_not_know_is_an_error_and_changes_nothing() -> None:
    drive = chain().put(image=1)
    drive.cursor.take(0)
    with pytest.raises(ValueError, match="encoder gave an output state,"):
        drive.cursor.complete(0, {"state": 1})
    drive.cursor.complete(0, {"states": 1, "state": None})
    assert drive.ready() == ["llm"]


def test_values_for_later_passes_of_a_walk_wait_behind() -> None:
    drive = chain().put(image=1)
    drive.put(image=10)
    drive.put(image=100)
    assert drive.run().client("text") == [4]
    assert drive.fired == ["encoder", "llm"]
    drive.cursor.again()
    assert not drive.done()
    assert drive.run().client("text") == [4, 22]
    drive.cursor.again()
    assert drive.run().client("text") == [4, 22, 202]
    drive.cursor.again()
    assert drive.ready() == []


def test_chunks_wait_behind_the_one_in_work() -> None:
    drive = Drive(plan_of(GraphNode("vad", ("mic",)), "vad.mic"), vad=lambda mic: {})
    drive.chunk("vad", "mic", chunk("a"))
    drive.cursor.take(0)
    drive.chunk("vad", "mic", chunk("b"))
    drive.chunk("vad", "mic", chunk("c"))
    assert drive.ready() == []
    drive.cursor.complete(0, {})
    assert [drive.fire("vad")["mic"] for _ in range(2)] == ["b", "c"]


def test_one_input_feeds_every_node_that_names_it() -> None:
    both = Parallel((GraphNode("a", ("x",), (Emit("a", "signal"),)), GraphNode("b", ("x",), (Emit("b", "signal"),))))
    drive = Drive(plan_of(both), a=lambda x: {"a": x}, b=lambda x: {"b": x}).put(x=7).run()
    assert drive.left == [("client", "a", 7), ("client", "b", 7)]


def test_one_output_goes_to_all_its_edges() -> None:
    section = Sequential(
        (
            GraphNode(
                "a",
                ("x",),
                (
                    Emit("x", "text"),
                    Keep("x"),
                    StreamingGraphEdge("x", "q", "z"),
                    GraphEdge("x", "b"),
                    GraphEdge("x", "c", "y"),
                ),
            ),
            GraphNode("b", ("x",), (Emit("b", "signal"),)),
            GraphNode("c", ("y",), (Emit("c", "signal"),)),
        )
    )
    drive = Drive(plan_of(section), a=lambda x: {"x": x}, b=lambda x: {"b": x}, c=lambda y: {"c": y})
    drive.put(x=1).fire("a")
    assert drive.left == [("client", "x", 1), ("kept", "x", 1), ("stream", "x", 1)]
    assert drive.run().left[3:] == [("client", "b", 1), ("client", "c", 1)]


def test_a_node_that_misses_only_its_stream_wants_it_exactly_then() -> None:
    section = Sequential(
        (
            GraphNode("a", ("x",), (GraphEdge("y", "b"),)),
            GraphNode("b", ("y", "s"), (Emit("out", "signal"),)),
        )
    )
    drive = Drive(plan_of(section, "b.s"), a=lambda x: {"y": x}, b=lambda y, s: {"out": (y, s)})
    assert drive.wants() == {}
    drive.put(x=1)
    assert drive.wants() == {}
    drive.fire("a")
    assert drive.wants() == {"b": ("s",)}
    assert drive.cursor.missing_streams(1) == ("s",)
    assert drive.ready() == []
    drive.chunk("b", "s", chunk("item"))
    assert drive.wants() == {}
    assert drive.cursor.missing_streams(1) == ()
    assert drive.run().client("out") == [(1, "item")]
    assert drive.done()


def test_a_chunk_that_is_early_waits_for_the_other_inputs() -> None:
    section = GraphNode("b", ("y", "s"), (Emit("out", "signal"),))
    drive = Drive(plan_of(section, "b.s"), b=lambda y, s: {"out": (y, s)})
    drive.chunk("b", "s", chunk("item"))
    assert drive.ready() == []
    drive.put(y=1)
    assert drive.wants() == {}
    assert drive.run().client("out") == [(1, "item")]


def test_a_node_with_two_streams_wants_those_it_lacks() -> None:
    section = DynamicLoop("l", GraphNode("b", ("s", "t"), (Emit("out", "signal"),)), None)
    drive = Drive(plan_of(section, "b.s", "b.t"), b=lambda s, t: {"out": (s, t)})
    assert drive.wants() == {"b": ("s", "t")}
    drive.chunk("b", "t", chunk(1))
    assert drive.wants() == {"b": ("s",)}
    drive.chunk("b", "s", chunk(2))
    assert drive.run().client("out") == [(2, 1)]
    assert drive.wants() == {"b": ("s", "t")}


def test_the_span_of_a_chunk_comes_with_its_value() -> None:
    cursor = Cursor(plan_of(GraphNode("b", ("s",)), "b.s"))
    piece = chunk("a", "b", "c", first=4, n_context=1)
    cursor.chunk(0, "s", piece)
    taken = cursor.take(0)
    assert taken.inputs == {"s": ("a", "b", "c")}
    span: Any = taken.spans["s"]
    assert (span.first, span.n_context, span.n_new, span.final) == (4, 1, 2, False)
