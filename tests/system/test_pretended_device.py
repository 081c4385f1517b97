"""Whole families on ranks with a device, on one that is not there (`tests.pretend`): what lies where, what crosses.

Its operators are a CPU's, so that in float32 answers are those of a CPU; that every tensor is where it has to be is
what these tests show, and what a CPU alone can not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.orpheus.model import FAMILY as ORPHEUS
from models.orpheus.model import SPEECH
from models.pi05.model import FAMILY as PI05
from models.vjepa2.model import FAMILY as VJEPA2
from mstar.client import Emission, Request, Session
from mstar.graph.declare import (
    Component,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    Partition,
    Sequential,
    StreamingGraphEdge,
    Task,
    Walk,
)
from mstar.local import LocalSystem
from mstar.placement import Placement, placement_of
from mstar.streaming.policies import LeftContextChunkPolicy
from mstar.submodule import STATE, Call, Output, Outputs, Packed, Rows, Step
from mstar.tensors import Value
from mstar.transport.local import LocalTransport, Shelf
from mstar.transport.shared import SharedTransport
from tests.pretend import Pretending, PretendMemory, pretending
from tests.system.test_pi05_local import DATA as POLICY
from tests.system.test_pi05_local import observation
from tests.system.test_vjepa2_local import ACTIONS, PICTURES
from tests.system.test_vjepa2_local import STATE as POSE
from tests.system.toy import end_of

PAGES = {"pages": 128}


@dataclass(frozen=True)
class Case:
    graph: Graph
    settings: Mapping[str, Any]
    cached: tuple[str, ...]  # components with K/V
    asks: Mapping[str, Callable[[Session], Request]]
    away: Mapping[str, Any]  # nodes that run on the second of two ranks


def say(session: Session, **settings: Any) -> Request:
    """Two sentences."""
    request = session.start(SPEECH.say, {}, {"max_tokens": 45, "seed": 3, **settings})
    request.credit("audio", 10**9)
    request.feed(SPEECH.written, 0, "Good morning. How are you?")
    request.commit(SPEECH.written, 1)
    return request


def _asks(task: str, inputs: Mapping[str, Any], **settings: Any) -> Callable[[Session], Request]:
    return lambda session: session.start(task, inputs, settings)


TINY = {"tiny": 1}
NONE = np.arange(0)
CASES = {
    "orpheus": Case(
        ORPHEUS.graph({}), {"tiny": True}, ("LM",), {"say": say}, {"LM": {"speak": "main"}, "codec": "other"}
    ),
    "pi05": Case(
        PI05.graph({}),
        {"checkpoint": str(POLICY), "statistics": "none"},
        ("LLM",),
        {"act": _asks("act", {"observation": observation(0)})},
        {"vit_encoder": "other", "LLM": {"prefill": "other", "action_gen": "main"}},
    ),
    "vjepa2": Case(
        VJEPA2.graph(TINY),
        TINY,
        ("rollout", "imagine"),
        {
            "encode": _asks("encode", {"frames": PICTURES}),
            "predict": _asks("predict", {"frames": PICTURES, "context": NONE, "target": NONE}),
            "classify": _asks("classify", {"frames": PICTURES}),
            "imagine": _asks(
                "imagine", {"frames": PICTURES[:1], "actions": ACTIONS[:3], "states": POSE[None]}, horizon=3
            ),
            "plan": _asks(
                "plan_image",
                {"observation": PICTURES[0], "goal": {"image": PICTURES[1]}, "state": POSE},
                samples=6,
                seed=5,
                iterations=2,
                horizon=2,
                top_k=2,
            ),
        },
        {"frame_encoder": "other", "score": "other", "encoder": "other"},
    ),
}


def placed(case: Case, *devices: str) -> Placement:
    """On one rank, or on two."""
    names = ("main", "other")[: len(devices)]
    family: dict[str, Any] = {"default": "main", "memory": dict.fromkeys(case.cached, PAGES)}
    if len(devices) > 1:
        family["nodes"] = case.away
    ranks = {name: {"device": device, "threads": 1} for name, device in zip(names, devices, strict=True)}
    return placement_of({"ranks": ranks, "families": {case.graph.name: family}, "oversubscribe": True})


def answers(case: Case, placement: Placement, where: Path | None = None, **settings: Any) -> dict[str, list[Any]]:
    """Per ask its emissions; the census is as before. `where`: arrays go between the ranks as between processes."""
    shelf = Shelf()
    devices = {rank.worker: rank.device for rank in placement.ranks}

    def transport(worker: str) -> SharedTransport | LocalTransport:
        if where is None:
            return LocalTransport(shelf)
        return SharedTransport(worker, where, memory=None if devices[worker] == "cpu" else PretendMemory())

    name = case.graph.name
    system = LocalSystem(
        {name: case.graph}, settings={name: {**case.settings, **settings}}, placement=placement, transport=transport
    )
    baseline = system.census()
    found: dict[str, list[Any]] = {}
    for ask, start in case.asks.items():
        session = system.open(name)
        request = start(session)
        system.run()
        events = request.drain()
        assert end_of(events).status == "done", end_of(events)
        found[ask] = [(each.output, each.value) for each in events if isinstance(each, Emission)]
        system.close(session)
    assert system.census() == baseline
    found["counters"] = [dict(system.ask("counters", of=worker)) for worker in system.workers]
    for each in system._transports.values():
        each.close()
    return found


def alike(one: Any, other: Any, tolerance: float) -> None:
    """The same trees, of the host's arrays, with numbers that are close."""
    assert type(one) is type(other)
    match one:
        case dict():
            assert one.keys() == other.keys()
            for name in one.keys() - {"elapsed_ms"}:
                alike(one[name], other[name], tolerance)
        case list() | tuple():
            assert len(one) == len(other)
            for left, right in zip(one, other, strict=True):
                alike(left, right, tolerance)
        case np.ndarray():
            assert one.dtype == other.dtype
            full = 255 if one.dtype == np.uint8 else 1  # of pictures
            np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=tolerance, atol=tolerance * full)
        case float():
            assert one == pytest.approx(other, rel=tolerance, abs=tolerance)
        case _:
            assert one == other


@pytest.fixture(scope="module")
def wanted() -> dict[str, dict[str, list[Any]]]:
    """What a CPU answers."""
    return {name: answers(case, placed(case, "cpu"), **FULL[name]) for name, case in CASES.items()}


@pytest.fixture
def device() -> Iterator[Pretending]:
    with pretending() as mode:
        yield mode


FULL: Mapping[str, Mapping[str, Any]] = {
    "orpheus": {"llm_kernel": "float32"},
    "pi05": {"dtype": "float32"},
    "vjepa2": {"dtype": "float32"},
}


@pytest.mark.parametrize("devices", [("cuda",), ("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")], ids="-".join)
@pytest.mark.parametrize("name", CASES)
def test_wherever_the_ranks_have_devices_answers_are_those_of_a_cpu(
    wanted: dict[str, dict[str, list[Any]]], device: Pretending, tmp_path: Path, name: str, devices: tuple[str, ...]
) -> None:
    case = CASES[name]
    found = answers(case, placed(case, *devices), tmp_path, **FULL[name])
    for ask in case.asks:
        alike(found[ask], wanted[name][ask], 1e-4)


@pytest.mark.parametrize("name", CASES)
def test_a_device_computes_in_bfloat16_unless_it_is_told_otherwise(
    wanted: dict[str, dict[str, list[Any]]], device: Pretending, name: str
) -> None:
    """Nearly the same; but a draw of speech, and the best of a plan's candidates, may be others."""
    case = CASES[name]
    found = answers(case, placed(case, "cuda"))
    for ask in case.asks.keys() - {"say", "plan"}:
        alike(found[ask], wanted[name][ask], 0.15)
    with pytest.raises(AssertionError):
        alike([found[ask] for ask in case.asks], [wanted[name][ask] for ask in case.asks], 1e-5)
    for each in found.get("say", []):
        assert each[0] != "audio" or np.isfinite(each[1]["pcm"]).all()


def test_keys_and_values_move_from_device_to_device(device: Pretending, tmp_path: Path) -> None:
    """But for the first time, which goes over the host with an offer."""
    case = CASES["pi05"]
    case = replace(case, asks=dict.fromkeys(("first", "second", "third"), case.asks["act"]))
    found = answers(case, placed(case, "cuda", "cuda"), tmp_path)["counters"]
    [giver] = [counted for counted in found if counted["engine_given_bytes"]]
    assert giver["device_leases"] == 2
    assert giver["device_bytes"] == giver["engine_given_bytes"] * 2 // 3


# ------------------------------------------------------------------------------------------------------ what crosses


class Works:
    """`make`: n → rows [n, 1500] of its device, in a stream and on an edge. `take`: chunks of them → sums so far."""

    max_batch = 4

    def __init__(self, settings: Mapping[str, Value]) -> None:
        self.device = str(settings["device"])

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        done = [self._run(call) for call in step.calls]
        return {name: [outputs[name] for outputs in done] for name in done[0]}

    def _run(self, call: Call) -> Mapping[str, Output]:
        if "n" in call.inputs:
            rows = torch.arange(1500.0 * int(call.inputs["n"]), device=self.device).reshape(-1, 1500)  # type: ignore[arg-type]
            return {"rows": Rows(rows), "all": {"rows": rows}}
        if "all" in call.inputs:
            given: Any = call.inputs["all"]
            return {"wave": {"sound": given["rows"].to(self.device) * 2}}
        chunk: Any = call.inputs["rows"]
        new = chunk[call.spans["rows"].n_context :].to(self.device).sum(0)
        total = new if call.state is None else new + call.state
        return {"sum": total, STATE: total}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False


def works(settings: Mapping[str, Value]) -> Works:
    return Works(settings)


STREAMS = Graph(
    name="streams",
    components=tuple(Component(name, f"{__name__}:works") for name in ("make", "use", "take")),
    partitions=(
        Partition(
            "making",
            (
                Walk(
                    "make",
                    Sequential(
                        (
                            GraphNode(
                                "make",
                                ("n",),
                                (
                                    StreamingGraphEdge("rows", "taking", "take", LeftContextChunkPolicy(3, 1), "rows"),
                                    GraphEdge("all", "use"),
                                ),
                            ),
                            GraphNode("use", ("all",), (Emit("wave", "signal"),)),
                        )
                    ),
                ),
            ),
        ),
        Partition("taking", (Walk("take", GraphNode("take", ("rows",), (Emit("sum", "signal"),))),)),
    ),
    tasks=(Task("go", {"making": "make", "taking": "take"}, ("n",)),),
)


@pytest.mark.parametrize("other", ["", "cuda", "cpu"])
def test_a_tensor_leaves_its_device_for_the_client_and_for_ranks_without_one(
    device: Pretending, tmp_path: Path, other: str
) -> None:
    ranks = {"main": {"device": "cuda", "threads": 1}, **({"other": {"device": other, "threads": 1}} if other else {})}
    family = {"default": "main", **({"nodes": {"take": "other"}} if other else {})}
    placement = placement_of({"ranks": ranks, "families": {"streams": family}, "oversubscribe": True})
    memories = {"worker.main": PretendMemory(), "worker.other": PretendMemory() if other == "cuda" else None}
    system = LocalSystem(
        {"streams": STREAMS},
        placement=placement,
        transport=lambda worker: SharedTransport(worker, tmp_path, memory=memories[worker]),
    )
    session = system.open("streams")
    for n in range(2):
        device.crossings.clear()
        request = session.start("go", {"n": 7})
        system.run()
        events = request.drain()
        assert end_of(events).status == "done", end_of(events)
        found = [(each.output, each.value) for each in events if isinstance(each, Emission)]
        sums = [value for name, value in found if name == "sum"]
        assert all(isinstance(value, np.ndarray) for value in sums)
        assert [value["sound"].shape for name, value in found if name == "wave"] == [(7, 1500)]
        whole = np.arange(1500.0 * 7).reshape(-1, 1500)
        for value, stop in zip(sums, (3, 6, 7), strict=True):
            np.testing.assert_allclose(value, whole[:stop].sum(0))
        emitted = 1 + (len(sums) if other != "cpu" else 0)
        over_host = n == 0 if other == "cuda" else other == "cpu"
        assert +device.crossings == {"down": emitted + over_host}
    if other == "cuda":
        assert memories["worker.main"].calls["write"] == memories["worker.other"].calls["read"] == 1  # type: ignore[union-attr]
    system.close(session)
