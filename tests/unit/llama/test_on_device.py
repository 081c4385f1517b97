"""The language models' nodes where a rank has a device: what they compute in, what they leave alone, captured steps."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from models.llama.network import kernel_of
from models.llama.nodes import LMSubmodule, language_model, load_network
from models.orpheus.nodes.speaking import SpeechLMSubmodule, lm
from models.orpheus.nodes.writing import prompt
from mstar.engine.api import Completed, Firing
from mstar.engine.kv.settings import KVSettings
from mstar.engine.kv_engine import KVCacheEngine
from mstar.errors import WeightsError
from mstar.submodule import Call, Capturable
from tests.parity.dense_attention import DenseCache
from tests.pretend import pretending
from tests.unit.engine.captured import Again, FixedTorch

DATA = Path(__file__).parents[2] / "data" / "llama"


@pytest.mark.parametrize(
    ("settings", "kernel", "device"),
    [
        ({}, "int4", "cpu"),
        ({"device": "cpu", "llm_kernel": "bfloat16"}, "bfloat16", "cpu"),
        ({"device": "cuda:1"}, "bfloat16", "cuda:1"),
        ({"device": "cuda", "llm_kernel": "float32"}, "float32", "cuda"),
    ],
)
def test_the_kernel_goes_by_the_device_unless_it_is_given(settings: Any, kernel: str, device: str) -> None:
    assert kernel_of(settings) == (kernel, device)


def test_four_bits_are_a_cpus() -> None:
    with pytest.raises(WeightsError, match=r"llm_kernel 'int4' is not supported on cuda \(float32, bfloat16\)"):
        kernel_of({"device": "cuda", "llm_kernel": "int4"})


@pytest.mark.parametrize("case", ["llama3", "qwen2", "qwen3"])
def test_half_precision_is_near_and_its_keys_and_values_are_halves(case: str) -> None:
    calls = [Call("a", "prefill", {"tokens": [3, 1, 4, 1, 5, 9, 2, 6]}), Call("b", "prefill", {"tokens": [5, 3, 5]})]
    logits = {}
    for kernel in ("float32", "bfloat16"):
        node = language_model({"llm": str(DATA / case), "llm_kernel": kernel})
        assert node.geometry.dtype == getattr(torch, kernel)
        packed = node.collate(calls)
        logits[kernel] = node.compute(packed.tensors, DenseCache().step(["a", "b"], packed.rows))["logits"]
    assert logits["bfloat16"].dtype == torch.float32
    spread = float(logits["float32"].std())
    torch.testing.assert_close(logits["bfloat16"], logits["float32"], rtol=0, atol=0.1 * spread)


def test_what_can_be_captured_is_the_dense_network_on_any_device() -> None:
    def found(case: str, kernel: Any) -> bool:
        node = LMSubmodule(load_network(DATA / case, kernel))
        assert isinstance(node, Capturable)
        return node.capturable

    assert found("qwen3", "bfloat16")
    assert found("llama3", "float32")
    assert not found("qwen3", "int4")
    assert not found("qwen3_moe", "float32")  # which experts run is read from the device


def test_a_step_leaves_the_device_alone_until_the_tokens_are_read() -> None:
    with pretending() as device:
        engine = KVCacheEngine(
            {"lm": language_model({"llm": str(DATA / "qwen3"), "device": "cuda"})},
            settings={"lm": KVSettings(pages=16, device="cuda")},
        )
        node = engine._parts["lm"].submodule
        assert isinstance(node, LMSubmodule)
        compute, during = node.compute, []

        def counted(*given: Any) -> Any:
            before = dict(device.crossings)
            results = compute(*given)
            during.append({name: device.crossings[name] - count for name, count in before.items()})
            return results

        node.compute = counted  # type: ignore[method-assign,assignment]
        token: Any = None
        for _ in range(4):
            inputs = {"tokens": [3, 1, 4]} if token is None else {"token": token}
            [done] = engine.step([Firing("s", "r", "lm", "go", inputs, prompt=token is None)])
            assert isinstance(done, Completed), done
            token = done.outputs["token"]
        assert during == [{"up": 0, "down": 0, "read": 0}] * 4


def _speech() -> tuple[SpeechLMSubmodule, Mapping[str, Any]]:
    settings: Mapping[str, Any] = {"tiny": True, "llm_kernel": "float32"}
    ids = prompt(settings)._ids(Call("r", "speak", {"sentence": {"spoken": "Good morning."}}))
    return lm(settings), {"tokens": ids}


def _text() -> tuple[LMSubmodule, Mapping[str, Any]]:
    return language_model({"llm": str(DATA / "qwen3"), "llm_kernel": "float32"}), {"tokens": list(range(3, 80))}


@pytest.mark.parametrize("make", [_text, _speech])
def test_captured_steps_of_the_language_models_are_the_steps_themselves(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mstar.engine.kv.part.CudaRecorder", Again)
    caplog.set_level(logging.ERROR)
    said: dict[bool, list[list[Any]]] = {}
    for graphs in (True, False):
        node, inputs = make()
        settings = KVSettings(pages=64, piece=64, budget=64, graphs=graphs)
        engine = KVCacheEngine({"lm": node}, settings={"lm": settings}, backend=FixedTorch)
        engine.capture()
        ahead = engine.counters()["graph_captures"]
        rows = {8: 4, 16: 5}[node.max_batch]  # sizes up to a batch
        assert ahead == (rows + 2 + 2 if graphs else 0)  # a prompt of 64; several of 64 and of 128
        firings = [Firing(f"s{n}", f"r{n}", "lm", "go", inputs, prompt=True, seed=n) for n in range(3)]
        told: list[list[Any]] = [[] for _ in firings]
        for n, firing in enumerate(firings):
            while not isinstance(done := engine.step([firing])[0], Completed):
                pass
            told[n].append(done.outputs["token"])
        for _ in range(20):
            again = [Firing(f"s{n}", f"r{n}", "lm", "go", {"token": own[-1]}, seed=n) for n, own in enumerate(told)]
            for own, done in zip(told, engine.step(again), strict=True):
                assert isinstance(done, Completed), done
                own.append(done.outputs["token"])
        said[graphs] = told
        assert (engine.counters()["graph_replays"] > 20) is graphs
        assert engine.counters()["graph_captures"] == ahead
        assert engine.counters()["graph_eager"] == 0
    assert said[True] == said[False]
