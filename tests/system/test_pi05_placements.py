"""π0.5 under every placement: the prefix read on one rank, the flow over it on another, pictures encoded apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from models.pi05 import model
from models.pi05.config import CAMERAS
from models.pi05.model import FAMILY
from mstar.client import Request, Session
from mstar.placement import one_rank
from tests.system.placed import Placed
from tests.system.shapes import apart, shipped

DATA = Path(__file__).parent.parent / "data" / "pi05"
INPUTS = load_file(DATA / "inputs.safetensors")
OUTPUTS = load_file(DATA / "outputs.safetensors")
SETTINGS = {"checkpoint": str(DATA), "statistics": "none"}
GRAPH = FAMILY.graph({})
SHAPES = {"one rank": one_rank(), "apart": apart(GRAPH), **shipped(model)}
DIVIDED = ("apart", "encoder", "prefill")


def acting(session: Session, sample: int, *, drawn: bool = False, **settings: Any) -> Request:
    """A recorded observation; `drawn`: with noise by the request's seed."""
    given: dict[str, Any] = {
        "images": {CAMERAS[n]: INPUTS[f"image_{n}"][sample] for n in range(3) if INPUTS[f"image_mask_{n}"][sample]},
        "tokens": INPUTS["lang_tokens"][sample][INPUTS["lang_masks"][sample]],
    }
    if not drawn:
        given["noise"] = INPUTS["noise"][sample]
    return session.start("act", {"observation": given}, settings)


def continued(session: Session) -> Request:
    """A chunk that is held to the one before."""
    given = {
        "images": {CAMERAS[0]: INPUTS["image_0"][0]},
        "tokens": np.arange(5),
        "noise": INPUTS["noise"][0],
        "prev_chunk": OUTPUTS["actions"][0][2:],
        "delay_steps": 2,
    }
    return session.start("act", {"observation": given})


FAMILY_PLACED = Placed(
    GRAPH,
    SETTINGS,
    {
        "sample 0": lambda session: acting(session, 0),
        "sample 1": lambda session: acting(session, 1),
        "sample 2": lambda session: acting(session, 2),
        "three steps": lambda session: acting(session, 1, drawn=True, seed=5, flow_steps=3),
        "a chunk that goes on": continued,
    },
)


def test_one_rank_gives_what_the_published_code_gives() -> None:
    for sample in range(3):
        [value] = FAMILY_PLACED.wanted(f"sample {sample}")["actions"]
        dtype, shape, found = value["actions"]
        actions = np.frombuffer(found, dtype).reshape(shape)
        assert np.abs(actions - OUTPUTS["actions"][sample]).max() < 5e-4


@pytest.mark.parametrize("wire", [False, True], ids=["by reference", "over the wire"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_placement_gives_the_same_bit_for_bit_and_leaves_nothing(name: str, wire: bool) -> None:
    FAMILY_PLACED.is_the_same(SHAPES[name], wire=wire)


@pytest.mark.parametrize("name", SHAPES)
def test_flow_steps_are_told_to_nobody_but_the_ranks_that_take_them(name: str) -> None:
    asks = {str(n): lambda session, n=n: acting(session, 0, flow_steps=n) for n in (2, 10)}
    placed = Placed(GRAPH, SETTINGS, asks)
    few, many = (placed.crossings(SHAPES[name], ask) for ask in asks)
    assert few == many  # wherever the flow is, the partition is at home with it
    assert many.get("Image", 0) == (name == "prefill")
    assert many.get("Fire", 0) == {"one rank": 0, "replicas": 0, "encoder": 1, "prefill": 2}.get(name, 3)


def test_what_two_nodes_on_one_rank_hand_on_does_not_travel_by_way_of_their_home() -> None:
    system = FAMILY_PLACED.system(SHAPES["prefill"], wire=True)
    session = system.open("pi05")
    request = acting(session, 0)
    kept = []
    while not request.ended:
        system.turn()
        kept.append(system.workers["worker.prefix"]._account.census(0)["left"])
        request.drain()
    assert set(kept) == {0, 1}  # the pictures' tokens, until they are read
    counted = system.ask("counters", of="worker.prefix")
    positions = counted["engine_prefilled_tokens"]
    assert counted["inline_bytes"] == counted["engine_given_bytes"] + positions * (
        8 + 4
    )  # K/V, keys, where steps began
    pictures = sum(INPUTS[f"image_{n}"][0].nbytes for n in range(3) if INPUTS[f"image_mask_{n}"][0])
    words = int(INPUTS["lang_masks"][0].sum())
    assert system.ask("counters", of="worker.flow")["inline_bytes"] == pictures + words * 8


def test_a_rank_holds_the_weights_of_its_own_walks_only() -> None:
    system = FAMILY_PLACED.system(SHAPES["prefill"])
    held = {}
    for name, worker in system.workers.items():
        part = worker._engines["pi05/LLM"]._parts["pi05/LLM"]  # type: ignore[attr-defined]
        held[name] = (part.submodule._prefix is not None, part.submodule._expert is not None)
    assert held == {"worker.prefix": (True, False), "worker.flow": (False, True)}


def test_a_prefix_that_was_read_before_is_not_read_again_though_its_kv_went_elsewhere() -> None:
    system = FAMILY_PLACED.system(SHAPES["prefill"])
    session = system.open("pi05")
    reused = []
    for _ in range(2):
        FAMILY_PLACED.answer(system, session, "sample 0")
        reused.append(system.ask("counters", of="worker.prefix")["engine_reused_tokens"])
    assert reused[0] == 0
    assert reused[1] > 0
    assert system.ask("counters", of="worker.flow")["engine_taken_bytes"] > 0


@pytest.mark.parametrize("name", DIVIDED)
def test_an_interrupted_policy_stops_on_every_rank(name: str) -> None:
    FAMILY_PLACED.is_interrupted(SHAPES[name], "sample 0")


@pytest.mark.parametrize("name", DIVIDED)
def test_a_newer_observation_supersedes_one_that_is_acted_on(name: str) -> None:
    FAMILY_PLACED.is_superseded(SHAPES[name], "sample 0", "sample 1")


@pytest.mark.parametrize("name", DIVIDED)
def test_a_robot_that_leaves_leaves_nothing_on_any_rank(name: str) -> None:
    FAMILY_PLACED.is_left(SHAPES[name], "sample 0")


@pytest.mark.parametrize("name", DIVIDED)
def test_any_rank_of_a_policy_may_be_lost(name: str) -> None:
    FAMILY_PLACED.loses_workers(SHAPES[name], "sample 0")
