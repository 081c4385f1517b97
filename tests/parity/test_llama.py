"""Llama, Qwen2, Qwen3 and Qwen3-MoE against what the published code gives for the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from models.blocks.rope import Rotation, inverse_frequencies
from models.llama.layers import TorchStack
from models.llama.nodes import LMSubmodule, load_network
from mstar.engine.api import Completed, Firing
from mstar.engine.kv_engine import KVCacheEngine, KVSettings
from mstar.submodule import Row
from mstar.tensors import Value
from tests.parity.dense_attention import DenseCache

DATA = Path(__file__).parent.parent / "data" / "llama"
CASES = ("smollm2", "llama3", "qwen2", "qwen3", "qwen3_moe")
PROMPTS = 4


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, atol=2e-4, rtol=1e-4)


def golden(case: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return load_file(DATA / case / "inputs.safetensors"), load_file(DATA / case / "outputs.safetensors")


@pytest.mark.parametrize("case", CASES)
def test_logits_at_every_position(case: str) -> None:
    network = load_network(DATA / case, "float32")
    inputs, outputs = golden(case)
    for i in range(PROMPTS):
        ids = inputs[f"prompt_{i}"]
        attention = DenseCache().prompt("a", len(ids))
        close(network.logits(network.forward(ids, attention.positions, attention)), outputs[f"logits_{i}"])


@pytest.mark.parametrize("case", CASES)
def test_hidden_states_after_every_layer(case: str) -> None:
    network = load_network(DATA / case, "float32")
    inputs, outputs = golden(case)
    ids = inputs["prompt_0"]
    attention = DenseCache().prompt("a", len(ids))
    rotation = Rotation(attention.positions, inverse_frequencies(network.config.rope))
    hidden = network.embed(ids)
    assert isinstance(network.stack, TorchStack)
    layers = network.stack.layers
    for n, layer in enumerate(layers):
        close(hidden, outputs[f"hidden_0_{n}"])
        hidden = layer(hidden, rotation, attention)
    attention = DenseCache().prompt("a", len(ids))
    embedded = network.forward(network.embed(ids), attention.positions, attention)
    close(embedded, outputs[f"hidden_0_{len(layers)}"])


@pytest.mark.parametrize("case", CASES)
def test_prompts_of_different_lengths_in_one_batch_give_their_last_logits_and_greedy_tokens(case: str) -> None:
    network = load_network(DATA / case, "float32")
    inputs, outputs = golden(case)
    names = [f"r{i}" for i in range(PROMPTS)]
    prompts = [inputs[f"prompt_{i}"] for i in range(PROMPTS)]
    cache = DenseCache()
    attention = cache.step(names, [Row(i, len(prompt)) for i, prompt in enumerate(prompts)])
    last = torch.tensor([len(prompt) for prompt in prompts]).cumsum(0) - 1
    logits = network.logits(network.forward(torch.cat(prompts), attention.positions, attention, last))
    close(logits, torch.stack([outputs[f"logits_{i}"][-1] for i in range(PROMPTS)]))
    drawn = [logits.argmax(-1)]
    for _ in range(len(outputs["greedy_0"])):
        attention = cache.step(names, [Row(i, 1) for i in range(PROMPTS)])
        logits = network.logits(network.forward(drawn[-1], attention.positions, attention))
        drawn.append(logits.argmax(-1))
    assert torch.stack(drawn[:-1], dim=1).tolist() == [outputs[f"greedy_{i}"].tolist() for i in range(PROMPTS)]
    close(logits, torch.stack([outputs[f"logits_full_last_{i}"] for i in range(PROMPTS)]))


@pytest.mark.parametrize("case", CASES)
def test_the_node_on_its_engine_draws_the_greedy_tokens(case: str) -> None:
    node = LMSubmodule(load_network(DATA / case, "float32"))
    node._eos = frozenset()  # the recorded tokens go on after the end of the turn
    inputs, outputs = golden(case)
    engine = KVCacheEngine({"lm": node}, settings={"lm": KVSettings(pages=64)})
    wanted = [outputs[f"greedy_{i}"].tolist() for i in range(PROMPTS)]

    def firing(i: int, walk: str, iteration: int, **given: Value) -> Firing:
        settings = {"max_tokens": len(wanted[i])}
        return Firing(
            f"s{i}", f"r{i}", "lm", walk, given, settings=settings, iteration=iteration, prompt=walk == "prefill"
        )

    done = engine.step([firing(i, "prefill", 0, tokens=inputs[f"prompt_{i}"].numpy()) for i in range(PROMPTS)])
    drawn: list[list[int]] = [[] for _ in wanted]
    for n in range(len(wanted[0])):
        for i, outcome in enumerate(done):
            assert isinstance(outcome, Completed)
            drawn[i].append(outcome.outputs["token"])  # type: ignore[arg-type]
            assert outcome.stop is (n == len(wanted[0]) - 1)
        if n < len(wanted[0]) - 1:
            done = engine.step([firing(i, "decode", n, token=drawn[i][-1]) for i in range(PROMPTS)])
    assert drawn == wanted


def test_four_bit_rows_of_an_expert_model_do_not_depend_on_the_batch() -> None:
    network = load_network(DATA / "qwen3_moe", "int4")
    ids = torch.arange(8) * 37 + 5
    names = [f"r{i}" for i in range(8)]

    def step(rows: list[int]) -> Tensor:
        attention = DenseCache().step([names[i] for i in rows], [Row(n, 1) for n in range(len(rows))])
        return network.logits(network.forward(ids[rows], attention.positions, attention))

    alone = torch.cat([step([i]) for i in range(8)])
    for size in (2, 3, 4, 8):
        assert torch.equal(step(list(range(size))), alone[:size])
