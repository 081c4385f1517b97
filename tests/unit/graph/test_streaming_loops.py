"""Nodes that streams feed: one firing per chunk, and loops that end with their stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mstar.graph.declare import (
    DynamicLoop,
    Emit,
    GraphEdge,
    GraphNode,
    Keep,
    Loop,
    Parallel,
    Section,
    Sequential,
)
from mstar.streaming.buffer import StreamBuffer
from mstar.streaming.policies import ContinueChunkPolicy, FixedChunkPolicy
from tests.unit.graph.drive import STOP, Drive, chunk, plan_of

VAD = GraphNode("vad", ("mic",), (Emit("p", "signal"),))


def loop(section: Section, **give: Any) -> DynamicLoop:
    return DynamicLoop("listen", section, None, **give)


@pytest.mark.parametrize("section", [VAD, loop(VAD)], ids=["bare", "in a loop"])
@pytest.mark.parametrize("last_is_empty", [False, True])
def test_a_node_with_only_a_stream_fires_once_per_chunk_and_ends_with_it(section: Section, last_is_empty: bool) -> None:
    drive = Drive(plan_of(section, "vad.mic"), vad=lambda mic: {"p": mic})
    for index in range(5):
        assert drive.wants() == {"vad": ("mic",)}
        drive.chunk("vad", "mic", chunk(index, first=index, final=index == 4 and not last_is_empty))
        assert drive.ready() == ["vad"]
        drive.fire("vad")
    assert drive.done() is not last_is_empty
    if last_is_empty:
        drive.chunk("vad", "mic", chunk(first=5, final=True))
    assert drive.done()
    assert drive.client("p") == [0, 1, 2, 3, 4]
    assert drive.iterations == [0, 1, 2, 3, 4]
    assert (drive.ready(), drive.wants()) == ([], {})


def test_a_stream_of_nothing_ends_the_loop_without_running_the_node() -> None:
    section = Sequential(
        (
            loop(VAD, outputs=(GraphEdge("p", "after"),), accumulated=()),
            GraphNode("after", ("p",), (Emit("end", "signal"),)),
        )
    )
    drive = Drive(plan_of(section, "vad.mic"), vad=lambda mic: {"p": mic}, after=lambda p: {"end": p})
    drive.chunk("vad", "mic", chunk(final=True))
    assert drive.fired == []
    assert drive.done()


def test_outputs_and_lists_come_out_when_the_stream_ends() -> None:
    twice = GraphNode("vad", ("mic",), (Emit("p", "signal"), GraphEdge("q", "")))
    section = Sequential(
        (
            loop(twice, outputs=(GraphEdge("p", "after"),), accumulated=(Keep("q"),)),
            GraphNode("after", ("p",), (Emit("end", "signal"),)),
        )
    )
    for empty in (False, True):
        drive = Drive(plan_of(section, "vad.mic"), vad=lambda mic: {"p": mic, "q": -mic}, after=lambda p: {"end": p})
        for index in range(3):
            drive.chunk("vad", "mic", chunk(index, first=index, final=index == 2 and not empty))
            drive.fire("vad")
        if empty:
            drive.chunk("vad", "mic", chunk(first=3, final=True))
        assert drive.run().left[3:] == [("kept", "q", [0, -1, -2]), ("client", "end", 2)]


def test_chunks_that_came_early_are_fired_one_pass_each() -> None:
    drive = Drive(plan_of(VAD, "vad.mic"), vad=lambda mic: {"p": mic})
    for index in range(4):
        drive.chunk("vad", "mic", chunk(index, first=index, final=index == 3))
    drive.run()
    assert drive.client("p") == [0, 1, 2, 3]
    assert drive.done()


def test_a_sequence_behind_a_stream_ends_each_pass_before_the_next() -> None:
    section = loop(
        Sequential(
            (
                GraphNode("head", ("mic",), (GraphEdge("x", "tail"),)),
                GraphNode("tail", ("x", "ctx"), (Emit("y", "signal"),)),
            )
        )
    )
    drive = Drive(plan_of(section, "head.mic"), head=lambda mic: {"x": mic}, tail=lambda x, ctx: {"y": (x, ctx)})
    drive.put(ctx="c")
    for index in range(3):
        drive.chunk("head", "mic", chunk(index, first=index, final=index == 2))
    drive.fire("head")
    assert drive.ready() == ["tail"]  # the next chunk waits for its pass
    drive.run()
    assert drive.fired == ["head", "tail"] * 3
    assert drive.client("y") == [(0, "c"), (1, "c"), (2, "c")]
    assert drive.done()


def test_a_verdict_ends_a_streaming_loop_though_chunks_wait() -> None:
    drive = Drive(plan_of(VAD, "vad.mic"), vad=lambda mic: {"p": mic, STOP: mic == 1})
    for index in range(4):
        drive.chunk("vad", "mic", chunk(index, first=index))
    drive.run()
    assert drive.client("p") == [0, 1]
    assert drive.done()


def test_a_bound_ends_a_streaming_loop_and_the_walk_goes_on() -> None:
    section = Sequential(
        (
            Loop("two", VAD, 2, outputs=(GraphEdge("p", "after"),)),
            GraphNode("after", ("p",), (Emit("end", "signal"),)),
        )
    )
    drive = Drive(plan_of(section, "vad.mic"), vad=lambda mic: {"p": mic}, after=lambda p: {"end": p})
    for index in range(3):
        drive.chunk("vad", "mic", chunk(index, first=index))
    assert drive.run().client("end") == [1]
    assert drive.done()


def test_a_stream_that_ends_early_ends_a_bounded_loop() -> None:
    drive = Drive(plan_of(Loop("ten", VAD, 10), "vad.mic"), vad=lambda mic: {"p": mic})
    drive.chunk("vad", "mic", chunk("only", final=True))
    assert drive.run().client("p") == ["only"]
    assert drive.done()


def test_the_end_of_a_stream_ends_all_loops_around_its_node() -> None:
    inner = Loop("three", VAD, 3, accumulated=(GraphEdge("p", "sum"),))
    section = loop(Sequential((inner, GraphNode("sum", ("p",), (Emit("sum", "signal"),)))))
    drive = Drive(plan_of(section, "vad.mic"), vad=lambda mic: {"p": mic}, sum=lambda p: {"sum": sum(p)})
    for index in range(7):
        drive.chunk("vad", "mic", chunk(index, first=index))
        drive.run()
    drive.chunk("vad", "mic", chunk(first=7, final=True))
    drive.run()
    assert drive.client("sum") == [0 + 1 + 2, 3 + 4 + 5, 6]
    assert drive.done()


def test_a_stream_that_ends_between_outer_passes_gives_nothing_more() -> None:
    inner = Loop("three", VAD, 3, accumulated=(GraphEdge("p", "sum"),))
    section = loop(Sequential((inner, GraphNode("sum", ("p",), (Emit("sum", "signal"),)))), outputs=(Keep("sum"),))
    drive = Drive(plan_of(section, "vad.mic"), vad=lambda mic: {"p": mic}, sum=lambda p: {"sum": sum(p)})
    for index in range(3):
        drive.chunk("vad", "mic", chunk(index, first=index))
        drive.run()
    drive.chunk("vad", "mic", chunk(first=3, final=True))
    assert drive.left[3:] == [("client", "sum", 3), ("kept", "sum", 3)]
    assert drive.done()


def test_an_empty_chunk_that_is_not_final_runs_the_node() -> None:
    buffer = StreamBuffer(ContinueChunkPolicy(FixedChunkPolicy(1)), 8)
    buffer.put(0, "hidden")
    buffer.end(1)

    def talker(text: str | None, code: int) -> Mapping[str, Any]:
        return {"code": code + 1, "heard": text, STOP: code == 3}

    node = GraphNode("talker", ("text", "code"), (GraphEdge("code", "talker"), Emit("heard", "signal"), Keep("code")))
    section = DynamicLoop("talk", node, 100)
    drive = Drive(plan_of(section, "talker.text"), talker=talker).put(code=0)
    while drive.wants():
        drive.chunk("talker", "text", buffer.take())
        drive.run()
    assert drive.left[-1] == ("kept", "code", 4)
    assert len(drive.fired) == 4
    assert drive.client("heard") == ["hidden"]


def test_with_two_streams_what_is_new_on_one_still_runs_the_node() -> None:
    node = GraphNode("b", ("s", "t"), (Emit("out", "signal"),))
    drive = Drive(plan_of(loop(node), "b.s", "b.t"), b=lambda s, t: {"out": (s, t)})
    drive.chunk("b", "s", chunk(final=True))
    drive.chunk("b", "t", chunk("last", final=True))
    assert drive.run().client("out") == [(None, "last")]
    assert drive.done()


def test_nodes_that_ran_before_the_stream_ended_keep_what_they_gave() -> None:
    body = Sequential(
        (
            GraphNode("a", ("x",), (GraphEdge("x", "a"), GraphEdge("y", "b"))),
            GraphNode("b", ("y", "s"), (Emit("out", "signal"),)),
        )
    )
    drive = Drive(
        plan_of(loop(body, outputs=(Keep("out"),)), "b.s"),
        a=lambda x: {"x": x + 1, "y": x},
        b=lambda y, s: {"out": (y, s)},
    )
    drive.put(x=0)
    for index in range(2):
        drive.run()
        drive.chunk("b", "s", chunk(index, first=index))
    drive.run()
    assert drive.fired == ["a", "b", "a", "b", "a"]
    drive.chunk("b", "s", chunk(first=2, final=True))
    assert drive.left == [("client", "out", (0, 0)), ("client", "out", (1, 1)), ("kept", "out", (1, 1))]
    assert drive.done()


def test_a_node_outside_of_loops_is_skipped_when_its_stream_has_nothing() -> None:
    section = Sequential(
        (
            GraphNode("b", ("y", "s"), (GraphEdge("out", "c"),)),
            GraphNode("c", ("out",), (Emit("c", "signal"),)),
        )
    )
    drive = Drive(plan_of(section, "b.s"))
    drive.put(y=1)
    drive.chunk("b", "s", chunk(final=True))
    assert drive.done()


def test_two_listeners_end_each_with_its_own_stream() -> None:
    listeners = (
        GraphNode("vad", ("mic",), (Emit("p", "signal"),)),
        GraphNode("gaze", ("cam",), (Emit("q", "signal"),)),
    )
    section = Parallel(tuple(DynamicLoop(node.name, node, None) for node in listeners))
    drive = Drive(plan_of(section, "vad.mic", "gaze.cam"), vad=lambda mic: {"p": mic}, gaze=lambda cam: {"q": cam})
    drive.chunk("vad", "mic", chunk(1, final=True))
    drive.run()
    assert drive.wants() == {"gaze": ("cam",)}
    drive.chunk("gaze", "cam", chunk(2))
    drive.run()
    drive.chunk("gaze", "cam", chunk(first=1, final=True))
    assert drive.left == [("client", "p", 1), ("client", "q", 2)]
    assert drive.done()


def test_a_final_chunk_ends_its_loop_only_with_the_pass_that_consumed_it() -> None:
    drive = Drive(plan_of(VAD, "vad.mic"), vad=lambda mic: {"p": mic})
    drive.chunk("vad", "mic", chunk(0))
    drive.cursor.take(0)
    drive.chunk("vad", "mic", chunk(1, first=1, final=True))
    drive.cursor.complete(0, {"p": 0})
    assert not drive.done()
    drive.cursor.take(0)
    drive.cursor.complete(0, {"p": 1})
    assert drive.done()
