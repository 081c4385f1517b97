"""Loops: held inputs, loop-backs, last and accumulated values, early ends, nesting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mstar.errors import Rejected
from mstar.graph.cursor import Cursor
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
    StreamingGraphEdge,
)
from tests.unit.graph.drive import STOP, Drive, Node, counting, plan_of

LLM = GraphNode("LLM", ("x", "ctx"), (GraphEdge("x", "LLM"), Emit("tok", "text")))


def decoding(most: int) -> Section:
    """Context held, x fed back, tok to the client; the last x and all toks come out."""
    return Sequential(
        (
            DynamicLoop(
                "decode",
                LLM,
                most,
                outputs=(GraphEdge("x", "dec"),),
                accumulated=(GraphEdge("tok", "sink"),),
            ),
            Parallel((GraphNode("dec", ("x",), (Emit("x", "signal"),)), GraphNode("sink", ("tok",), (Keep("toks"),)))),
        )
    )


def llm(stop_at: int = -1) -> Node:
    """x counts passes; tok tells what the pass saw."""

    def node(x: int, ctx: str) -> Mapping[str, Any]:
        return {"x": x + 1, "tok": f"{ctx}{x + 1}", STOP: x + 1 == stop_at}

    return node


def decode(most: int, stop_at: int = -1, **limits: int) -> Drive:
    return Drive(
        plan_of(decoding(most)),
        limits=limits,
        LLM=llm(stop_at),
        dec=lambda x: {"x": x},
        sink=lambda tok: {"toks": tok},
    ).put(x=0, ctx="c")


# ------------------------------------------------------------------------------------------------------------ one loop


def test_a_diffusion_loop_runs_its_steps_and_hands_on_the_last_latent() -> None:
    section = Sequential(
        (
            Loop(
                "steps", GraphNode("denoiser", ("latent",), (GraphEdge("latent", "denoiser"),)), 3,
                outputs=(GraphEdge("latent", "decoder"),),
            ),
            GraphNode("decoder", ("latent",), (Emit("image", "image"),)),
        )
    )  # fmt: skip
    drive = Drive(plan_of(section), denoiser=counting("latent"), decoder=lambda latent: {"image": latent})
    drive.put(latent=0).run()
    assert drive.fired == ["denoiser"] * 3 + ["decoder"]
    assert drive.iterations == [0, 1, 2, 0]
    assert drive.left == [("client", "image", 3)]
    assert drive.done()


def test_decoding_stops_with_the_verdict() -> None:
    section = DynamicLoop(
        "decode", GraphNode("llm", ("token",), (GraphEdge("token", "llm"), Emit("token", "text"))), 1000,
        outputs=(Keep("token"),),
    )  # fmt: skip
    drive = Drive(plan_of(section), llm=counting("token", stop_at=4)).put(token=0).run()
    assert drive.client("token") == [1, 2, 3, 4]
    assert drive.left[-1] == ("kept", "token", 4)
    assert drive.cursor.ready() == []
    assert drive.cursor.wants() == []
    assert drive.done()


def test_one_decoding_loop_from_beginning_to_end() -> None:
    drive = decode(3)
    assert [drive.fire("LLM") for _ in range(3)] == [{"x": x, "ctx": "c"} for x in range(3)]
    assert set(drive.ready()) == {"dec", "sink"}
    drive.run()
    assert drive.left == [
        ("client", "tok", "c1"),
        ("client", "tok", "c2"),
        ("client", "tok", "c3"),
        ("client", "x", 3),
        ("kept", "toks", ["c1", "c2", "c3"]),
    ]


def test_a_stop_in_the_second_pass_ends_with_the_second_pass() -> None:
    drive = decode(10, stop_at=2).run()
    assert drive.fired == ["LLM", "LLM", "dec", "sink"]
    assert drive.left[-2:] == [("client", "x", 2), ("kept", "toks", ["c1", "c2"])]
    assert drive.done()


def test_what_a_pass_emits_leaves_before_the_next_pass_begins() -> None:
    drive = decode(3)
    for done in range(1, 4):
        drive.fire("LLM")
        assert len(drive.client("tok")) == done


def test_clear_forgets_a_stop() -> None:
    drive = decode(10, stop_at=3).run()
    assert drive.fired.count("LLM") == 3
    drive.cursor.clear()
    drive.fired.clear()
    drive.nodes = {**drive.nodes, "LLM": llm()}
    drive.put(x=0, ctx="c").run()
    assert drive.fired.count("LLM") == 10


def test_clear_in_the_middle_of_a_pass_forgets_it() -> None:
    drive = decode(10)
    drive.fire("LLM")
    drive.cursor.take(0)
    drive.cursor.clear()
    assert drive.ready() == []
    assert drive.put(x=0, ctx="d").run().client("tok") == ["c1"] + [f"d{i}" for i in range(1, 11)]


def test_a_request_may_lower_a_bound_but_not_raise_it() -> None:
    for limit, passes in ((4, 4), (1, 1), (99, 10)):
        assert decode(10, decode=limit, other=0).run().fired.count("LLM") == passes
    with pytest.raises(Rejected, match="decode is 0") as caught:
        decode(10, decode=0)
    assert caught.value.param == "decode"


def test_accumulated_goes_once_to_each_of_its_edges() -> None:
    edges = (Keep("p"), Emit("p", "signal"), StreamingGraphEdge("p", "q", "z"))
    section = Loop("l", GraphNode("a", ("x",), (GraphEdge("x", "a"), GraphEdge("p", ""))), 3, accumulated=edges)
    drive = Drive(plan_of(section), a=lambda x: {"x": x + 1, "p": x * x}).put(x=1).run()
    assert drive.left == [("kept", "p", [1, 4, 9]), ("client", "p", [1, 4, 9]), ("stream", "p", [1, 4, 9])]


def test_one_pass_only() -> None:
    drive = decode(1).run()
    assert drive.fired == ["LLM", "dec", "sink"]
    assert drive.left[-1] == ("kept", "toks", ["c1"])


def test_the_branches_of_a_guided_step_wait_for_each_other() -> None:
    names = ("main", "text", "image")
    section = Loop(
        "cfg",
        Sequential(
            (
                Parallel(tuple(GraphNode(n, ("latent", "t"), (GraphEdge(n, "combine"),)) for n in names)),
                GraphNode(
                    "combine",
                    names,
                    tuple(GraphEdge(back, n) for n in names for back in ("latent", "t")),
                ),
            )
        ),
        4,
        outputs=(Emit("latent", "signal"),),
    )
    plan = plan_of(section)
    assert len(plan.loops[1].fed_back) == 6
    assert set(plan.inputs) == {"latent", "t"}
    assert len(plan.inputs["latent"]) == 3

    def branch(name: str) -> Node:
        return lambda latent, t: {name: latent + t}

    drive = Drive(
        plan,
        main=branch("main"),
        text=branch("text"),
        image=branch("image"),
        combine=lambda main, text, image: {"latent": main + text + image, "t": main - text + 1},
    )
    drive.put(latent=1, t=0).run()
    assert drive.fired.count("combine") == 4
    assert drive.client("latent") == [3 * (3 * (3 * 3 + 3) + 3) + 3]


# ------------------------------------------------------------------------------------------------------------- nesting


def nested() -> Section:
    """outer(2) × [inner(3) of denoiser → refiner] → decoder; `held` is external to both loops."""
    denoiser = GraphNode("denoiser", ("latent", "held"), (GraphEdge("latent", "denoiser"), Emit("step", "signal")))
    inner = Loop("inner", denoiser, 3, outputs=(GraphEdge("latent", "refiner"),))
    refiner = GraphNode("refiner", ("latent",), (GraphEdge("latent", "denoiser"),))
    outer = Loop("outer", Sequential((inner, refiner)), 2, outputs=(GraphEdge("latent", "decoder"),))
    return Sequential((outer, GraphNode("decoder", ("latent",), (Emit("image", "image"),))))


def nested_drive(section: Section) -> Drive:
    return Drive(
        plan_of(section),
        denoiser=lambda latent, held: {"latent": f"{latent}{held}", "step": latent},
        refiner=lambda latent: {"latent": f"{latent}|"},
        decoder=lambda latent: {"image": latent},
    )


def test_nested_loops_run_the_inner_one_anew_each_outer_pass() -> None:
    drive = nested_drive(nested()).put(latent="", held="d").run()
    assert drive.fired == (["denoiser"] * 3 + ["refiner"]) * 2 + ["decoder"]
    assert drive.iterations == [0, 1, 2, 0, 0, 1, 2, 1, 0]
    assert drive.client("image") == ["ddd|ddd|"]  # the later producer's, once, though both name it latent
    assert drive.client("step") == ["", "d", "dd", "ddd|", "ddd|d", "ddd|dd"]
    assert drive.done()


def test_an_outer_output_that_the_inner_loop_supplies_carries_its_last_value_once() -> None:
    section = Sequential(
        (
            Loop(
                "outer",
                Loop(
                    "inner",
                    GraphNode("a", ("x",), (GraphEdge("x", "a"),)),
                    3,
                    outputs=(GraphEdge("x", "a"), Emit("x", "signal")),
                ),
                2,
                outputs=(GraphEdge("x", "b"),),
                accumulated=(),
            ),
            GraphNode("b", ("x",), (Emit("end", "signal"),)),
        )
    )
    drive = Drive(plan_of(section), a=lambda x: {"x": x + 1}, b=lambda x: {"end": x}).put(x=0).run()
    assert drive.left == [("client", "x", 3), ("client", "x", 6), ("client", "end", 6)]


def test_the_first_value_of_an_inner_loop_is_held_by_the_outer_one() -> None:
    """The inner loop-back starts each outer pass with the value from outside both, not with a stale one."""
    inner = Loop("inner", GraphNode("a", ("x", "k"), (GraphEdge("x", "a"),)), 2, outputs=(GraphEdge("x", "b"),))
    outer = Loop("outer", Sequential((inner, GraphNode("b", ("x",), (GraphEdge("k", "a"), Emit("x", "signal"))))), 3)
    drive = Drive(plan_of(outer), a=lambda x, k: {"x": f"{x}{k}"}, b=lambda x: {"k": len(x), "x": x})
    assert drive.put(x="x", k="k").run().client("x") == ["xkk", "x33", "x33"]


def test_a_port_fed_back_by_both_loops_takes_each_ones_value_in_its_pass() -> None:
    inner = Loop("inner", GraphNode("a", ("x",), (GraphEdge("x", "a"),)), 2, outputs=(GraphEdge("x", "b"),))
    middle = Loop("middle", Sequential((inner, GraphNode("b", ("x",), (GraphEdge("x", "a"),)))), 2,
                  outputs=(GraphEdge("x", "c"),))  # fmt: skip
    outer = Loop("outer", Sequential((middle, GraphNode("c", ("x",), (Emit("x", "signal"),)))), 2)
    nodes: dict[str, Any] = {
        "a": lambda x: {"x": f"{x}a"},
        "b": lambda x: {"x": f"{x}b"},
        "c": lambda x: {"x": f"{x}c"},
    }
    drive = Drive(plan_of(outer), **nodes).put(x="-")
    assert drive.run().client("x") == ["-aabaabc", "-aabaabc"]


def test_values_accumulate_over_inner_and_outer_passes() -> None:
    body = GraphNode("a", ("x",), (GraphEdge("x", "a"), GraphEdge("p", "")))
    inner = Loop("inner", body, 2, accumulated=(GraphEdge("p", ""),), outputs=(GraphEdge("x", "a"),))
    outer = Loop("outer", inner, 3, accumulated=(Keep("p"),))
    drive = Drive(plan_of(outer), a=lambda x: {"x": x + 1, "p": x}).put(x=0).run()
    assert drive.left == [("kept", "p", [[0, 1], [2, 3], [4, 5]])]


def test_a_stop_of_the_outer_loop_lets_the_inner_one_finish() -> None:
    inner = Loop("inner", GraphNode("a", ("x",), (GraphEdge("x", "a"), Emit("x", "signal"))), 3,
                 outputs=(GraphEdge("x", "a"),))  # fmt: skip
    outer = DynamicLoop("outer", inner, 10, outputs=(Keep("x"),))
    drive = Drive(plan_of(outer), a=lambda x: {"x": x + 1, STOP: x + 1 == 4}).put(x=0).run()
    assert drive.client("x") == [1, 2, 3, 4, 5, 6]
    assert drive.left[-1] == ("kept", "x", 6)


def test_a_stop_ends_the_innermost_dynamic_loop_only() -> None:
    inner = DynamicLoop("inner", GraphNode("a", ("x",), (GraphEdge("x", "a"), Emit("x", "signal"))), 10,
                        outputs=(GraphEdge("x", "a"),))  # fmt: skip
    outer = DynamicLoop("outer", inner, 3)
    drive = Drive(plan_of(outer), a=lambda x: {"x": x + 1, STOP: x % 2 == 1}).put(x=0).run()
    assert drive.client("x") == [1, 2, 3, 4, 5, 6]
    assert drive.iterations == [0, 1] * 3


def test_a_stop_ends_one_loop_and_not_its_neighbour() -> None:
    section = Parallel(
        tuple(
            DynamicLoop(n, GraphNode(n, (n,), (GraphEdge(n, n), Emit(n, "signal"))), 5, outputs=(Keep(n),))
            for n in "ab"
        )
    )
    drive = Drive(plan_of(section), a=counting("a", stop_at=2), b=counting("b")).put(a=0, b=0).run()
    assert drive.client("a") == [1, 2]
    assert drive.client("b") == [1, 2, 3, 4, 5]


def test_an_outcome_that_comes_late_or_twice_is_refused() -> None:
    cursor = Cursor(plan_of(decoding(10)))
    cursor.put("x", 0)
    cursor.put("ctx", "c")
    cursor.take(0)
    cursor.complete(0, {"x": 1, "tok": "c1"}, True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="LLM is not busy"):
            cursor.complete(0, {"x": 2, "tok": "c2"}, True)
    assert [cursor.plan.component(node) for node in cursor.ready()] == ["dec", "sink"]


def test_a_verdict_outside_of_any_loop_is_told() -> None:
    drive = Drive(plan_of(GraphNode("prefill", ("x",))), prefill=lambda x: {STOP: x})
    assert not drive.put(x=False).run().cursor.stopped
    drive.cursor.clear()
    assert drive.put(x=True).run().cursor.stopped


def test_an_external_that_is_late_holds_only_who_needs_it() -> None:
    section = Sequential(
        (
            GraphNode("slow", ("s",), (GraphEdge("ctx", "b"),)),
            Loop(
                "l",
                Sequential(
                    (
                        GraphNode("a", ("x",), (GraphEdge("y", "b"),)),
                        GraphNode("b", ("y", "ctx"), (GraphEdge("x", "a"), Emit("y", "signal"))),
                    )
                ),
                2,
            ),
        )
    )
    nodes: dict[str, Any] = {
        "slow": lambda s: {"ctx": s},
        "a": lambda x: {"y": x + 1},
        "b": lambda y, ctx: {"x": y, "y": (y, ctx)},
    }
    drive = Drive(plan_of(section), **nodes).put(s="s", x=0)
    drive.fire("a")
    assert drive.ready() == ["slow"]
    drive.fire("slow")
    assert drive.run().client("y") == [(1, "s"), (2, "s")]
