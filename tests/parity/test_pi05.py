"""π0.5 against what openpi's published code gives for the same weights, pictures, tokens and noise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from models.pi05.config import Pi05Config, read_config
from models.pi05.flow import advance, times
from models.pi05.network import Expert, Eyes, Prefix
from models.pi05.weights import read_weights
from mstar.submodule import Row
from tests.parity.dense_attention import DenseCache

DATA = Path(__file__).parent.parent / "data" / "pi05"
SAMPLES = 3
CAMERAS = 3


def close(got: Tensor, wanted: Tensor, atol: float = 2e-4) -> None:
    torch.testing.assert_close(got, wanted, atol=atol, rtol=0)


@pytest.fixture(scope="module")
def inputs() -> dict[str, Tensor]:
    return load_file(DATA / "inputs.safetensors")


@pytest.fixture(scope="module")
def outputs() -> dict[str, Tensor]:
    return load_file(DATA / "outputs.safetensors")


@pytest.fixture(scope="module")
def config() -> Pi05Config:
    return read_config(DATA)


@pytest.fixture(scope="module")
def eyes(config: Pi05Config) -> Eyes:
    return Eyes(config, read_weights(DATA))


@pytest.fixture(scope="module")
def prefix(config: Pi05Config) -> Prefix:
    return Prefix(config, read_weights(DATA))


@pytest.fixture(scope="module")
def expert(config: Pi05Config) -> Expert:
    return Expert(config, read_weights(DATA))


def embedded(eyes: Eyes, prefix: Prefix, inputs: dict[str, Tensor], sample: int) -> Tensor:
    """Pictures that are there, then the prompt: [valid tokens, width]."""
    pictures = [inputs[f"image_{n}"][sample] for n in range(CAMERAS) if inputs[f"image_mask_{n}"][sample]]
    ids = inputs["lang_tokens"][sample][inputs["lang_masks"][sample]]
    return torch.cat((eyes(torch.stack(pictures)).flatten(0, 1), prefix.embed(ids)))


def test_picture_tokens(eyes: Eyes, inputs: dict[str, Tensor], outputs: dict[str, Tensor]) -> None:
    close(eyes(inputs["image_0"]), outputs["image_tokens_0"])


def test_pictures_keep_their_scale_and_words_are_scaled_once(
    eyes: Eyes, prefix: Prefix, inputs: dict[str, Tensor], outputs: dict[str, Tensor]
) -> None:
    close(embedded(eyes, prefix, inputs, 0)[:27], outputs["prefix_embs"][0][:27])
    words = inputs["lang_masks"][0]
    close(embedded(eyes, prefix, inputs, 0)[27:], outputs["prefix_embs"][0][27:][words])


@pytest.mark.parametrize("sample", range(SAMPLES))
def test_prefix_states(
    sample: int, eyes: Eyes, prefix: Prefix, inputs: dict[str, Tensor], outputs: dict[str, Tensor]
) -> None:
    x = embedded(eyes, prefix, inputs, sample)
    attention = DenseCache().step(["a"], [Row(0, len(x), causal=False)])
    close(prefix.hidden(x, attention), outputs[f"prefix_hidden_{sample}"])


def test_time_conditions(expert: Expert, outputs: dict[str, Tensor]) -> None:
    close(expert.condition(torch.tensor([1.0])), outputs["adarms_cond_t1"])
    close(expert.condition(torch.tensor([0.3])), outputs["adarms_cond_t0.3"])


def test_velocities_states_and_actions_of_the_whole_batch(
    eyes: Eyes,
    prefix: Prefix,
    expert: Expert,
    config: Pi05Config,
    inputs: dict[str, Tensor],
    outputs: dict[str, Tensor],
) -> None:
    names = [f"r{i}" for i in range(SAMPLES)]
    cache = DenseCache()
    parts = [embedded(eyes, prefix, inputs, i) for i in range(SAMPLES)]
    prefix.prefill(torch.cat(parts), cache.step(names, [Row(i, len(x), causal=False) for i, x in enumerate(parts)]))
    steps = times(10)
    modulation = expert.modulation(steps[:-1])
    actions = inputs["noise"]
    rows = [Row(i, config.horizon, causal=False, store=False) for i in range(SAMPLES)]
    for n in range(10):
        close(actions, outputs[f"x_{n}"], 5e-4)
        velocity = expert.velocity(actions, modulation[n].expand(SAMPLES, -1, -1, -1), cache.step(names, rows))
        if f"v_{n}" in outputs:
            close(velocity, outputs[f"v_{n}"], 5e-4 if n else 2e-4)
        actions = torch.stack([advance(a, v, n, 10) for a, v in zip(actions, velocity, strict=True)])
    close(actions, outputs["actions"], 5e-4)
    close(steps[-1:], outputs["t_9"], 1e-7)
