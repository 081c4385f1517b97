"""A wrong graph is refused with a sentence that names what is wrong; a right one passes and is told in plain JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from mstar.errors import GraphError
from mstar.graph.check import check
from mstar.graph.declare import (
    Component,
    DynamicLoop,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    Keep,
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
from mstar.graph.describe import describe
from mstar.graph.plan import compile_graph
from mstar.graph.streams import section_nodes
from mstar.streaming.policies import FixedChunkPolicy, LeftContextChunkPolicy

TOKEN = StreamingGraphEdge("token", "speech", "voice", LeftContextChunkPolicy(4, 2), bound=8)
MIC = LiveInput("mic", (StreamingGraphEdge("mic", "ear", "vad"),), slices=("llm",), history=100)
LLM = GraphNode("llm", ("token",), (GraphEdge("token", "llm"), TOKEN, Emit("text", "text")))
PREFILL = GraphNode("llm", ("prompt",), (Keep("token"), TOKEN), prompt=True)
DECODE = DynamicLoop("decode", LLM, 100)
VOICE = GraphNode("voice", ("token",), (Emit("audio", "audio", window=100),))
VAD = GraphNode("vad", ("mic",), (Emit("speech", "signal"),))
TALK = Task("talk", {"talk": "prefill", "speech": "speech"}, ("prompt",))


def graph(
    *,
    prefill: Section = PREFILL,
    decode: Section = DECODE,
    speech: Section = VOICE,
    listen: Section = VAD,
    then: str = "decode",
    live: tuple[LiveInput, ...] = (MIC,),
    tasks: tuple[Task, ...] = (TALK, Task("listen", {"ear": "listen"}, standing=True)),
    **change: Any,
) -> Graph:
    """A right graph, and what a test makes wrong in it."""
    partitions = (
        Partition("talk", (Walk("prefill", prefill, then), Walk("decode", decode))),
        Partition("speech", (Walk("speech", speech),)),
        Partition("ear", (Walk("listen", listen),)),
    )
    names = dict.fromkeys(
        node.name for partition in partitions for walk in partition.walks for node in section_nodes(walk.section)
    )
    components = tuple(Component(name, f"m:{name}", engine="kv" if name == "llm" else "stateless") for name in names)
    return replace(Graph("g", components, partitions, tasks, live), **change)


def only(section: Section, *inputs: str, **change: Any) -> Graph:
    """A graph of one walk p.w, and the inputs of its one task."""
    components = tuple(Component(node.name, "m:f") for node in dict.fromkeys(section_nodes(section)))
    partitions = (Partition("p", (Walk("w", section),)),)
    return replace(Graph("g", components, partitions, (Task("t", {"p": "w"}, inputs),)), **change)


def a(*outputs: Any, name: str = "a", inputs: tuple[str, ...] = ("x",)) -> GraphNode:
    return GraphNode(name, inputs, outputs)


def b(*outputs: Any, inputs: tuple[str, ...] = ("y",)) -> GraphNode:
    return GraphNode("b", inputs, outputs)


def test_a_right_graph_passes() -> None:
    check(graph())
    check(only(Sequential((a(GraphEdge("y", "b")), b())), "x"))


WRONG: dict[str, tuple[Graph, str]] = {
    # names
    "component twice": (graph(components=(Component("a", "m:f"),) * 2), "component a is declared 2 times"),
    "component without a name": (graph(components=(Component("", "m:f"),)), "component without a name"),
    "component of no submodule": (
        only(a(), "x", components=(Component("a", "module"),)),
        "component a: submodule 'module' is not module:factory",
    ),
    "component unused": (
        only(a(), "x", components=(Component("a", "m:f"), Component("z", "m:f"))),
        "component z is used by no walk",
    ),
    "node unknown": (only(a(), "x", components=()), r"walk p\.w: node a is no component"),
    "prompt without a cache": (only(GraphNode("a", ("x",), prompt=True), "x"), "node a has a prompt, but no KV cache"),
    "walk twice": (
        only(a(), "x", partitions=(Partition("p", (Walk("w", a()), Walk("w", a()))),)),
        "partition p: walk w is declared 2 times",
    ),
    "partition without walks": (only(a(), "x", partitions=(Partition("p", ()),)), "partition p has no walks"),
    "node twice": (only(Sequential((a(), a())), "x"), r"walk p\.w: node a stands in it twice"),
    "input twice": (only(a(inputs=("x", "x")), "x"), "node a names an input twice"),
    "node without inputs": (only(a(inputs=())), "node a has no inputs"),
    "loops of one name": (
        only(Sequential((Loop("l", a(), 1), Loop("l", b(), 1))), "x", "y"),
        "two loops are called 'l'",
    ),
    "empty section": (only(Sequential((a(), Parallel(()))), "x"), "a Parallel has no sections"),
    # edges
    "edge to nowhere": (
        only(a(GraphEdge("y", "z")), "x"),
        "edge y of node a goes to node z, which is not in this walk",
    ),
    "edge to no input": (
        only(Sequential((a(GraphEdge("y", "b", "q")), b())), "x", "y"),
        "edge y of node a goes to input q, which node b does not have",
    ),
    "edge back without a loop": (
        only(Sequential((b(), a(GraphEdge("y", "b")))), "x"),
        "edge y of node a goes back to node b, but no loop is around both",
    ),
    "edge out of a loop": (
        only(Sequential((Loop("l", a(GraphEdge("y", "b")), 2), b())), "x"),
        "edge y of node a leaves loop l: name it in the loop's outputs",
    ),
    "fed twice": (
        only(Sequential((Parallel((a(GraphEdge("y", "b")), a(GraphEdge("z", "b", "y"), name="c"))), b())), "x"),
        "input y of node b is fed twice a pass, by node a and node c",
    ),
    "fed ahead and back in one loop": (
        only(Loop("l", Sequential((a(GraphEdge("y", "b")), b(GraphEdge("y", "b")))), 2), "x"),
        "input y of node b is fed twice a pass, by node a and node b",
    ),
    "fed inside, back outside": (
        only(
            Loop(
                "l",
                Sequential(
                    (
                        Loop("m", Sequential((a(GraphEdge("y", "b")), b())), 2),
                        GraphNode("c", ("z",), (GraphEdge("y", "b"),)),
                    )
                ),
                2,
            ),
            "x",
            "z",
        ),
        "input y of node b is fed twice a pass, by node a and node c",
    ),
    "circle": (
        only(Parallel((a(GraphEdge("y", "b")), b(GraphEdge("x", "a")))), "x"),
        "nothing in node a → node b → node a|nothing in node b → node a → node b",
    ),
    "stream and edge": (
        graph(speech=Sequential((a(GraphEdge("token", "voice")), VOICE))),
        "goes to input token of node voice, which a stream feeds",
    ),
    # loops
    "no iterations": (only(Loop("l", a(), 0), "x"), "loop l has 0 iterations"),
    "no dynamic iterations": (only(DynamicLoop("l", a(), 0), "x"), "loop l has 0 iterations"),
    "no bound": (only(DynamicLoop("l", a(), None), "x"), "loop l has no bound and no streaming input"),
    "ghost output": (
        only(Loop("l", a(), 2, outputs=(Keep("y"),)), "x"),
        "loop l gives out y, which its body does not produce",
    ),
    "ghost list": (
        only(Loop("l", a(), 2, accumulated=(Keep("y"),)), "x"),
        "loop l gives out y, which its body does not produce",
    ),
    "output of an inner loop's node": (
        only(Loop("l", Loop("m", a(GraphEdge("x", "a")), 2), 2, outputs=(Keep("x"),)), "x"),
        "loop l gives out x, which its body does not produce",
    ),
    "last and list": (
        only(Loop("l", a(GraphEdge("x", "a")), 2, outputs=(Keep("x"),), accumulated=(Emit("x", "text"),)), "x"),
        "loop l names x in outputs and in accumulated",
    ),
    "output of two side by side": (
        only(Loop("l", Parallel((a(Emit("o", "text")), b(Emit("o", "text")))), 2, outputs=(Keep("o"),)), "x", "y"),
        "loop l gives out o, which node a and node b produce side by side",
    ),
    "taken by nothing": (only(a(GraphEdge("y", "")), "x"), r"walk p\.w: nothing takes y of node a"),
    # inputs and tasks
    "unfed": (only(a()), "input x of node a has no value: task t does not take it and no earlier walk keeps it"),
    "unseeded": (
        only(Loop("l", a(GraphEdge("x", "a")), 2)),
        "input x of node a has no first value for its loop: task t does not take it",
    ),
    "kept too late": (
        graph(prefill=replace(PREFILL, outputs=(TOKEN,))),
        r"walk talk\.decode: input token of node llm has no first value",
    ),
    "then": (graph(then="sing"), r"walk talk\.prefill goes on with sing"),
    "unreached": (graph(then=""), r"walk talk\.decode is reached by no task"),
    "task twice": (graph(tasks=(TALK, TALK)), "task talk is declared 2 times"),
    "task of no partition": (graph(tasks=(replace(TALK, start={}),)), "task talk starts no partition"),
    "task of an unknown partition": (
        graph(tasks=(replace(TALK, start={"sing": "x"}),)),
        "task talk starts partition sing",
    ),
    "task of an unknown walk": (
        graph(tasks=(replace(TALK, start={"talk": "sing"}),)),
        "task talk starts walk sing, which partition talk does not have",
    ),
    "task input unknown": (
        graph(tasks=(replace(TALK, inputs=("prompt", "extra")),)),
        "task talk takes input extra, which none of its walks has",
    ),
    "task input twice": (
        graph(tasks=(replace(TALK, inputs=("prompt", "prompt")),)),
        "task talk: input prompt is declared 2 times",
    ),
    # emissions
    "two modalities": (
        only(Sequential((a(Emit("o", "text")), b(Emit("o", "audio")))), "x", "y"),
        "b emits o as audio, elsewhere it is text",
    ),
    "two windows": (
        only(Sequential((a(Emit("o", "text", 1)), b(Emit("o", "text", 2)))), "x", "y"),
        "b emits o with window 2, elsewhere it is 1",
    ),
    "window of nothing": (only(a(Emit("o", "text", 0)), "x"), "a emits o with window 0"),
    # streams
    "stream declared otherwise": (
        graph(prefill=replace(PREFILL, outputs=(Keep("token"), replace(TOKEN, policy=FixedChunkPolicy(1))))),
        "stream token into partition speech is declared twice, not alike",
    ),
    "stream into nowhere": (
        graph(live=(replace(MIC, edges=(replace(MIC.edges[0], partition="eye"),)),)),
        "stream mic ends in partition eye, which the graph does not have",
    ),
    "stream to an unknown node": (
        graph(live=(replace(MIC, edges=(replace(MIC.edges[0], to="ear"),)),)),
        "stream mic ends in node ear, which partition ear does not have",
    ),
    "stream to an unknown input": (
        graph(live=(replace(MIC, edges=(replace(MIC.edges[0], input="sound"),)),)),
        "stream mic ends in input sound, which node vad of ear does not have",
    ),
    "stream into its own partition": (
        only(Sequential((a(StreamingGraphEdge("s", "p", "b", input="y")), DynamicLoop("l", b(), None))), "x"),
        "stream s ends in the partition that feeds it, p",
    ),
    "bound below a chunk": (
        graph(
            decode=DynamicLoop("decode", replace(LLM, outputs=(GraphEdge("token", "llm"), replace(TOKEN, bound=5))), 9),
            prefill=replace(PREFILL, outputs=(Keep("token"), replace(TOKEN, bound=5))),
        ),
        "stream token has a bound of 5, less than a chunk of 6 items",
    ),
    "streams into one input": (
        graph(live=(MIC, LiveInput("line", (StreamingGraphEdge("line", "ear", "vad", input="mic"),)))),
        "streams mic and line end in one input, mic of node vad",
    ),
    "stream fed by two nodes": (
        graph(prefill=Sequential((PREFILL, GraphNode("a", ("x",), (TOKEN,))))),
        r"walk talk\.prefill: llm and a both feed stream token",
    ),
    "stream without a producer": (
        graph(tasks=(Task("say", {"speech": "speech"}),)),
        "task say: stream token, which node voice of speech reads, is fed by nothing",
    ),
    "stream with two producers": (
        graph(live=(MIC, LiveInput("token", (TOKEN,)))),
        "task talk: stream token, which node voice of speech reads, is fed by talk and the client",
    ),
    "live edge of another name": (
        graph(live=(replace(MIC, edges=(replace(MIC.edges[0], name="sound", input="mic"),)),)),
        "live input mic has an edge called sound",
    ),
    "slices to nobody": (graph(live=(replace(MIC, slices=("z",)),)), "live input mic gives slices to node z"),
    "slices of nothing": (graph(live=(replace(MIC, history=0),)), "live input mic keeps a history of 0 items"),
    "slices of a request": (
        graph(live=(replace(MIC, scope="request"),)),
        "live input mic belongs to a request, so nothing can look back",
    ),
    "live input to nowhere": (graph(live=(MIC, LiveInput("cam"))), "live input cam goes nowhere"),
    "live input twice": (graph(live=(MIC, MIC)), "live input mic is declared 2 times"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_graph_is_refused(case: str) -> None:
    wrong, sentence = WRONG[case]
    with pytest.raises(GraphError, match=sentence) as caught:
        check(wrong)
    assert "\n" not in str(caught.value)


def test_client_text_may_feed_what_a_partition_feeds_in_other_tasks() -> None:
    text = LiveInput("token", (TOKEN,), scope="request", full="wait")
    check(graph(live=(MIC, text), tasks=(TALK, Task("say", {"speech": "speech"}), Task("listen", {"ear": "listen"}))))


def test_unknown_walks_are_refused_by_the_plan() -> None:
    plan = compile_graph(graph())
    assert plan.walk("talk", "decode").name == "decode"
    with pytest.raises(GraphError, match="partition talk has no walk sing"):
        plan.walk("talk", "sing")


def test_the_plan_knows_what_a_node_sends_out_by_itself_and_through_loops() -> None:
    inner = Loop("inner", a(GraphEdge("x", "a"), Emit("p", "signal")), 2, outputs=(GraphEdge("x", ""),))
    frames = StreamingGraphEdge("x", "q", "z")
    outer = Loop("outer", inner, 2, outputs=(Emit("x", "image", window=3), frames))
    plan = compile_graph(only(outer, "x")).walk("p", "w")
    assert plan.emits(0) == (Emit("p", "signal"), Emit("x", "image", window=3))
    assert plan.streams_out(0) == (frames,)
    assert (plan.component(0), plan.prompt(0), plan.node_ids) == ("a", False, (0,))


def test_streams_are_collected_with_all_their_producers() -> None:
    streams = compile_graph(graph()).streams
    assert set(streams) == {("token", "speech"), ("mic", "ear")}
    assert streams[("token", "speech")].producers == ("talk",)
    assert streams[("mic", "ear")].producers == ("",)


def test_a_graph_is_told_in_plain_json() -> None:
    told: dict[str, Any] = describe(graph())
    assert json.loads(json.dumps(told)) == told
    assert [partition["name"] for partition in told["partitions"]] == ["talk", "speech", "ear"]
    prefill, decode = told["partitions"][0]["walks"]
    assert (prefill["then"], decode["then"]) == ("decode", "")
    assert decode["loops"] == [{"name": "decode", "parent": "", "max_iters": 100, "dynamic": True}]
    assert decode["nodes"] == [
        {"name": "llm", "component": "llm", "loop": "decode", "inputs": [{"name": "token", "streaming": False}]},
    ]
    llm = {"from": "llm", "from_loop": False, "maker": "llm"}
    assert decode["edges"] == [
        {**llm, "kind": "back", "name": "token", "to": "llm", "input": "token"},
        {"from": "", "from_loop": False, "maker": "", "kind": "input", "name": "token", "to": "llm", "input": "token"},
        {**llm, "kind": "stream", "name": "token", "partition": "speech", "to": "voice", "input": "token"},
        {**llm, "kind": "emit", "name": "text", "modality": "text"},
    ]
    assert told["streams"][0] == {
        "name": "token",
        "partition": "speech",
        "to": "voice",
        "input": "token",
        "policy": {"policy": "left_context", "k": 4, "c": 2},
        "items": "one",
        "bound": 8,
        "from": [
            {"partition": "talk", "walk": "prefill", "node": "llm", "maker": "llm"},
            {"partition": "talk", "walk": "decode", "node": "llm", "maker": "llm"},
        ],
    }
    assert told["streams"][1]["from"] == [{"partition": "", "walk": "", "node": "", "maker": ""}]
    assert told["live"][0]["slices"] == ["llm"]
    assert told["tasks"][0]["start"] == {"talk": "prefill", "speech": "speech"}
