"""Products and layers as graphs of onnxruntime."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.blocks.linear import Kernel
from models.blocks.onnx_graph import Activations, GraphDraft
from models.blocks.onnx_session import GraphSession, has_products, padded, padded_rows
from models.blocks.quantise import GROUP, Grouped4, Grouped8, Stored, quantise4, quantise8
from models.blocks.rope_config import RopeConfig
from models.llama import fused as fused_layers
from models.llama.config import LlamaConfig, MoEConfig
from models.llama.fused import SHORT, FusedStack
from models.llama.layers import Stack, TorchStack
from models.llama.network import Llama
from mstar.submodule import Row
from tests.parity.dense_attention import DenseCache

ERROR: dict[Activations, float] = {"int8": 1e-2, "int16": 1e-4, "float32": 1e-5}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def product(activations: Activations, weight: Grouped4 | Grouped8, bias: Tensor | None = None) -> GraphSession:
    draft = GraphDraft(activations)
    return GraphSession(draft.model({"x": weight.shape[1]}, [draft.product("x", weight, bias)]))


@pytest.mark.parametrize("activations", ERROR)
@pytest.mark.parametrize("width", [32, 96, 160])
def test_a_product_is_that_of_the_weights_values(activations: Activations, width: int) -> None:
    weight, bias, x = quantise4(random(40, width)), random(40, seed=1), random(5, width, seed=2)
    [got] = product(activations, weight, bias)({"x": x.numpy()})
    wanted = x @ weight.dense().T + bias
    assert (torch.from_numpy(got) - wanted).norm() <= ERROR[activations] * wanted.norm()


def test_an_eight_bit_product_keeps_the_codes() -> None:
    weight = Grouped8(torch.arange(-128, 128, dtype=torch.int8).repeat(3).view(8, 96), random(8, 3).abs())
    x = random(4, 96, seed=1)
    [got] = product("int8", weight)({"x": x.numpy()})
    wanted = x @ weight.dense().T
    assert (torch.from_numpy(got) - wanted).norm() <= ERROR["int8"] * wanted.norm()


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("activations", ERROR)
def test_a_row_of_a_product_is_the_same_in_every_number_of_rows(activations: Activations) -> None:
    session, x = product(activations, quantise4(random(48, 96))), random(300, 96, seed=1)
    whole = torch.from_numpy(session({"x": padded(x).numpy()})[0])
    for rows in (1, 2, 3, 8, 127, 128, 129, 257, 300):
        for first in (0, 300 - rows):
            [part] = session({"x": padded(x[first : first + rows]).numpy()})
            assert torch.equal(torch.from_numpy(part)[:rows], whole[first : first + rows])


def test_no_row_is_multiplied_alone() -> None:
    assert [padded_rows(n) for n in (1, 2, 128, 129, 130, 257)] == [2, 2, 128, 130, 130, 258]
    assert torch.equal(padded(random(1, 3)), torch.cat((random(1, 3), torch.zeros(1, 3))))


def test_zeros_stay_zeros() -> None:
    for activations in ERROR:
        [got] = product(activations, quantise4(random(16, 64)))({"x": torch.zeros(2, 64).numpy()})
        assert not got.any()


def test_nearest_eight_bit_codes() -> None:
    weight = random(6, 64)
    eight = quantise8(weight)
    step = weight.unflatten(1, (-1, 32)).abs().amax(-1) / 127
    assert ((eight.dense() - weight).unflatten(1, (-1, 32)).abs() <= 0.5001 * step[..., None]).all()
    assert torch.equal(quantise8(torch.zeros(2, 32)).dense(), torch.zeros(2, 32))


class Random:
    """Weights of a network: matrices in 4 bits, vectors around 1, biases around 0."""

    def __contains__(self, name: object) -> bool:
        return False

    def take(self, name: str, shape: tuple[int, ...]) -> Stored:
        values = random(*shape, seed=zlib.crc32(name.encode()))
        if len(shape) == 1:
            return values * 0.1 if name.endswith("bias") else 1 + values * 0.1
        values /= shape[1] ** 0.5
        return values if shape[1] % GROUP else quantise4(values)


PLAIN = LlamaConfig(
    family="llama",
    vocab=300,
    hidden=64,
    inner=96,
    layers=3,
    heads=4,
    kv_heads=2,
    head_dim=16,
    eps=1e-5,
    rope=RopeConfig(16, 10_000.0),
    max_positions=512,
    tied=True,
)
CONFIGS = {
    "plain": PLAIN,
    "biases": replace(PLAIN, qkv_bias=True, output_bias=True, mlp_bias=True),
    "norms of heads": replace(PLAIN, qk_norm=True, heads=6),
}


@pytest.fixture(scope="module", params=CONFIGS)
def config(request: pytest.FixtureRequest) -> LlamaConfig:
    return CONFIGS[request.param]


@pytest.fixture(scope="module")
def network(config: LlamaConfig) -> Llama:
    network = Llama(config, Random(), "int4")
    assert isinstance(network.stack, FusedStack)
    return network


def forward(network: Llama, prompts: list[Tensor], *, all_tokens: bool = False) -> Tensor:
    names = [f"r{i}" for i in range(len(prompts))]
    attention = DenseCache().step(names, [Row(i, len(prompt)) for i, prompt in enumerate(prompts)])
    last = None if all_tokens else torch.tensor([len(prompt) for prompt in prompts]).cumsum(0) - 1
    return network.forward(torch.cat(prompts), attention.positions, attention, last)


@pytest.mark.parametrize("tokens", [1, SHORT, SHORT + 1, 129])
def test_fused_layers_are_those_of_the_dense_network(network: Llama, config: LlamaConfig, tokens: int) -> None:
    dense = Llama(config, Random(), "float32")
    prompt = torch.arange(tokens) * 31 % 300
    got, wanted = (forward(each, [prompt], all_tokens=True) for each in (network, dense))
    torch.testing.assert_close(got, wanted, atol=1e-3, rtol=1e-3)


def test_short_and_long_rows_of_one_step_are_as_they_are_alone(network: Llama) -> None:
    lengths = (1, SHORT + 3, SHORT, 2 * SHORT, 2)
    prompts = [torch.arange(n) * 7 + n for n in lengths]
    alone = torch.cat([forward(network, [prompt]) for prompt in prompts])
    assert torch.equal(forward(network, prompts), alone)
    whole = forward(network, prompts, all_tokens=True)
    assert torch.equal(whole[torch.tensor(lengths).cumsum(0) - 1], alone)


def test_what_does_not_fit_runs_on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def stack(config: LlamaConfig, kernel: Kernel = "int4", *, fused: bool = True) -> Stack:
        return Llama(config, Random(), kernel, fused=fused).stack

    moe = MoEConfig(experts=2, top_k=1, inner=32, normalise=True)
    assert isinstance(stack(replace(PLAIN, moe=moe)), TorchStack)
    assert isinstance(stack(replace(PLAIN, inner=112)), TorchStack)
    assert isinstance(stack(PLAIN, "float32"), TorchStack)
    assert isinstance(stack(PLAIN, fused=False), TorchStack)
    assert isinstance(stack(PLAIN), FusedStack)
    monkeypatch.setattr(fused_layers, "has_products", lambda: False)
    assert isinstance(stack(PLAIN), TorchStack)


def test_this_onnxruntime_has_the_products() -> None:
    assert has_products()
