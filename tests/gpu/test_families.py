"""Families of torch modules on a CUDA device: in float32 they answer as on a CPU, in bfloat16 nearly so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.llama.nodes import language_model
from models.registry import module_of
from mstar.client import Emission, RequestEnded
from mstar.client.launch import launch
from mstar.engine.api import Completed, Firing, Partial
from mstar.engine.kv.settings import default_settings
from mstar.engine.kv_engine import KVCacheEngine
from mstar.placement import placement_of
from tests.system.test_pi05_local import DATA as POLICY
from tests.system.test_pi05_local import observation
from tests.system.test_pretended_device import CASES, FULL, Case, alike, answers, placed, say

pytestmark = pytest.mark.gpu

PROMPT = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308]


def case_of(name: str) -> Case:
    """Speech is greedy: a draw may fall on the other side of a sum that was rounded otherwise."""
    if name != "orpheus":
        return CASES[name]
    asks = {"say": lambda session: say(session, temperature=0, repetition_penalty=1.0)}
    return replace(CASES[name], asks=asks)


@pytest.mark.parametrize("devices", [("cuda",), ("cuda", "cuda"), ("cuda", "cpu")], ids="-".join)
@pytest.mark.parametrize("name", CASES)
def test_in_float32_a_family_answers_as_on_a_cpu(cuda: str, name: str, devices: tuple[str, ...]) -> None:
    case = case_of(name)
    wanted = answers(case, placed(case, "cpu"), **FULL[name])
    found = answers(case, placed(case, *devices), **FULL[name])
    for ask in case.asks:
        alike(found[ask], wanted[ask], 5e-3)


@pytest.mark.parametrize("name", ["pi05", "vjepa2"])
def test_in_bfloat16_it_answers_nearly_so(cuda: str, name: str) -> None:
    case = case_of(name)
    wanted = answers(case, placed(case, "cpu"), **FULL[name])
    found = answers(case, placed(case, "cuda"))
    for ask in case.asks.keys() - {"plan"}:  # the best of a plan's candidates may be others
        alike(found[ask], wanted[ask], 0.15)


def test_speech_in_bfloat16_is_whole_frames(cuda: str) -> None:
    """Tokens may be others than in float32; what they are is checked by what comes out: sound of whole frames."""
    found = answers(CASES["orpheus"], placed(CASES["orpheus"], "cuda"))["say"]
    pcm = [value["pcm"] for name, value in found if name == "audio"]
    assert np.isfinite(np.concatenate(pcm)).all()
    assert sum(map(len, pcm)) > 2048


def test_a_published_language_model_says_what_it_says_on_a_cpu(cuda: str, smollm2: Path) -> None:
    """Greedy, in float32: attention by torch; its logits are far enough from one another."""
    said = {}
    for device in ("cpu", cuda):
        node = language_model({"llm": str(smollm2), "llm_kernel": "float32", "device": device})
        lm = KVCacheEngine({"lm": node}, settings={"lm": replace(default_settings(device), pages=64)})
        firing = Firing("s", "r", "lm", "go", {"tokens": PROMPT}, prompt=True)
        tokens: list[Any] = []
        while len(tokens) < 24:
            [done] = lm.step([firing])
            if isinstance(done, Completed):
                tokens.append(done.outputs["token"])
                firing = Firing("s", "r", "lm", "go", {"token": tokens[-1]})
            else:
                assert isinstance(done, Partial), done
        said[device] = tokens
    assert said[cuda] == said["cpu"]


async def test_keys_and_values_move_between_two_processes_of_a_device(cuda: str) -> None:
    """A policy whose prefix is read on one rank, and whose actions flow on another."""
    ranks = {name: {"device": cuda, "threads": 1} for name in ("prefix", "flow")}
    nodes = {"vit_encoder": "prefix", "LLM": {"prefill": "prefix", "action_gen": "flow"}}
    memory = {"LLM": {"pages": 128}}
    placement = placement_of(
        {
            "ranks": ranks,
            "families": {"pi05": {"default": "flow", "nodes": nodes, "memory": memory}},
            "oversubscribe": True,
        }
    )
    settings = {"checkpoint": str(POLICY), "statistics": "none", "dtype": "float32"}
    [(_, wanted)] = answers(CASES["pi05"], placed(CASES["pi05"], "cpu"), dtype="float32")["act"]
    running = launch({"pi05": {"module": module_of("pi05"), "settings": settings}}, placement)
    try:
        await running.ready()
        session = await running.client.open("pi05")
        for _ in range(3):
            events: list[Any] = [event async for event in session.start("act", {"observation": observation(0)})]
            assert isinstance(events[-1], RequestEnded)
            assert events[-1].status == "done", events[-1]
            assert isinstance(events[0], Emission)
            np.testing.assert_allclose(events[0].value["actions"], wanted["actions"], atol=5e-3)
        counted: Any = await running.client.ask("counters", of="worker.prefix")
        assert counted["device_leases"] + counted["device_refused"] > 0
    finally:
        await running.stop()
