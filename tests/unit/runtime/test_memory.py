"""Who waits for memory, who gives way, who is refused: with K/V engines whose pages are few."""

from __future__ import annotations

import pytest

from mstar.client import Emission, Request, RequestEnded
from mstar.graph.declare import Component, DynamicLoop, Emit, Graph, GraphEdge, GraphNode, Keep, Partition, Task, Walk
from mstar.local import LocalSystem
from mstar.placement import placement_of
from tests.unit.engine.toy import answer, engine

LENGTH = 12
PROMPTS = {name: [i, *range(i, i + 14)] for i, name in enumerate("abcd", 3)}


def graph(factory: str) -> Graph:
    """A prompt, and `LENGTH` - 1 tokens after its own."""
    told, odds = Emit("token", "signal"), Emit("logits", "signal")
    read = GraphNode("LM", ("tokens",), (Keep("token"), told, odds), prompt=True)
    write = GraphNode("LM", ("token",), (GraphEdge("token", "LM"), told, odds))
    walks = (Walk("prefill", read, then="decode"), Walk("decode", DynamicLoop("tokens", write, LENGTH - 1)))
    return Graph(
        name="f",
        components=(Component("LM", f"tests.unit.engine.toy:{factory}", engine="kv"),),
        partitions=(Partition("text", walks),),
        tasks=(Task("say", {"text": "prefill"}, ("tokens",)),),
    )


def system(factory: str = "divisible", /, **memory: int | bool) -> LocalSystem:
    small: dict[str, int | bool] = {"pages": 10, "page_size": 4, "grain": 4, **memory}
    placement = placement_of({"ranks": {"main": {}}, "families": {"f": {"memory": {"LM": small}}}})
    return LocalSystem({"f": graph(factory)}, placement=placement)


def say(local: LocalSystem, *names: str) -> list[Request]:
    """Begun at the same time, each in a session of its own."""
    sessions = [local.open("f") for _ in names]
    return [each.start("say", {"tokens": PROMPTS[name]}) for each, name in zip(sessions, names, strict=True)]


def ended(request: Request) -> tuple[list[int], RequestEnded]:
    events = request.drain()
    end = events[-1]
    assert isinstance(end, RequestEnded)
    return [event.value for event in events if isinstance(event, Emission) and event.output == "token"], end


@pytest.mark.parametrize("memory", [{}, {"piece": 8, "budget": 8}, {"shared": False}, {"reuse": False}])
def test_requests_that_do_not_fit_together_all_answer_as_alone(memory: dict[str, int | bool]) -> None:
    """Each needs 7 of 10 pages in the end."""
    local = system("divisible", **memory)
    requests = dict(zip(PROMPTS, say(local, *PROMPTS), strict=True))
    local.run(turns=5_000)
    for name, request in requests.items():
        tokens, end = ended(request)
        assert (end.status, end.cause) == ("done", "")
        assert tokens == answer(engine(), "x", PROMPTS[name], LENGTH)
    counters = local.ask("counters", of="worker.main")
    assert counters["engine_preemptions"] > 0
    assert counters["engine_recomputed_tokens"] > 0
    assert local.clock.now() == 0.0  # nobody waited for a time to pass


def test_where_nothing_can_be_computed_again_the_last_is_refused_at_once_with_the_numbers() -> None:
    local = system("plain")
    first, second = say(local, "a", "b")
    local.run(turns=5_000)
    assert ended(first)[1].status == "done"
    _, end = ended(second)
    assert (end.status, end.code) == ("failed", "out_of_memory")
    assert end.cause == "needs 1 page, 0 free, 10 held by 2 sessions"
    assert local.clock.now() == 0.0


def test_what_can_never_fit_is_refused() -> None:
    local = system(pages=4)
    [request] = say(local, "a")
    local.run(turns=5_000)
    _, end = ended(request)
    assert (end.code, end.cause) == ("out_of_memory", "needs 5 pages, the pool has 4")


def test_the_census_comes_back() -> None:
    local = system()
    before = local.ask("census", of="worker.main")
    sessions = [local.open("f") for _ in range(3)]
    requests = [each.start("say", {"tokens": PROMPTS["a"]}) for each in sessions]
    for _ in range(9):
        local.turn()
    requests[0].interrupt()
    local.run(turns=5_000)
    for session in sessions:
        local.close(session)
    local.run(turns=5_000)
    assert local.ask("census", of="worker.main") == before
