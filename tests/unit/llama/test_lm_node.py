"""The node's contract, on a tiny checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from models.llama.nodes import LMSubmodule, language_model
from mstar.errors import Rejected, WeightsError
from mstar.submodule import STATE, Call, KVSubmodule, Many, Output, Step
from mstar.tensors import Value
from tests.parity.dense_attention import DenseCache

CASE = Path(__file__).parents[2] / "data" / "llama" / "qwen2"
EOS = 2


@pytest.fixture(scope="module")
def node() -> LMSubmodule:
    return language_model({"llm": str(CASE), "llm_kernel": "float32"})


def prefill(tokens: Sequence[int], *, reused: int = 0, **settings: Value) -> Call:
    return Call("r", "prefill", {"tokens": np.asarray(tokens)}, settings=settings, reused=reused, length=reused)


def decode(token: Value, *, drawn: int = 1, length: int = 5, **settings: Value) -> Call:
    state: Value = {"prompt": length - drawn + 1, "reused": 3, "drawn": drawn}
    return Call("r", "decode", {"token": token}, settings=settings, state=state, length=length)


def run(node: LMSubmodule, call: Call, drawn: int) -> dict[str, Output]:
    """Outputs of one call whose sampler draws a given id."""
    packed = node.collate([call])
    attention = DenseCache().step(["r"], packed.rows)

    def sample(logits: Tensor) -> Tensor:
        assert logits.shape == (1, node.network.config.vocab)
        return torch.tensor([drawn])

    outputs = node.forward(packed, Step([call], attention, sample))
    return {name: values[0] for name, values in outputs.items()}


def seen(outputs: Mapping[str, Output]) -> dict[str, Output]:
    """The outputs without the state."""
    return {name: value for name, value in outputs.items() if name != STATE}


def test_it_is_a_kv_submodule_of_the_networks_shape(node: LMSubmodule) -> None:
    assert isinstance(node, KVSubmodule)
    assert (node.geometry.layers, node.geometry.kv_heads, node.geometry.head_dim) == (3, 2, 16)


def test_a_prompt_packs_what_is_not_cached(node: LMSubmodule) -> None:
    calls = [prefill([5, 6, 7, 8], reused=3), prefill([9, 10])]
    packed = node.collate(calls)
    assert packed.tensors["ids"].tolist() == [8, 9, 10]
    assert packed.tensors["last"].tolist() == [0, 2]
    assert [(row.call, row.tokens) for row in packed.rows] == [(0, 1), (1, 2)]
    assert node.keys(calls[0]).tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("token", [7, np.int64(7), np.array([7]), torch.tensor(7)])
def test_a_pass_appends_the_token_before(node: LMSubmodule, token: Value) -> None:
    assert node.keys(decode(token)).tolist() == [7]
    assert node.collate([decode(token)]).tensors["ids"].tolist() == [7]


def test_an_ordinary_token_goes_on_and_is_text(node: LMSubmodule) -> None:
    for call in (prefill([5, 6]), decode(5)):
        outputs = run(node, call, 7)
        begun = {"prompt": 2, "reused": 0} if call.state is None else None
        assert seen(outputs) == {"token": 7, "text_tokens": Many((7,)), "usage": None, "begun": begun}
        assert node.verdict(call, outputs) is False


def test_the_end_of_the_turn_stops_and_is_not_text(node: LMSubmodule) -> None:
    for call in (prefill([5, 6]), decode(5)):
        outputs = run(node, call, EOS)
        drawn = 1 if call.state is None else 2
        usage = {"prompt": 2 if call.state is None else 5, "reused": call.reused, "generated": drawn, "reason": "stop"}
        if call.state is not None:
            usage["reused"] = 3
        begun = {"prompt": 2, "reused": 0} if call.state is None else None
        assert seen(outputs) == {"token": EOS, "text_tokens": Many((), cut=True), "usage": usage, "begun": begun}
        assert node.verdict(call, outputs) is True


@pytest.mark.parametrize(
    "call", [prefill([5, 6], max_tokens=1), decode(5, max_tokens=2), decode(5, drawn=4, max_tokens=5)]
)
def test_the_last_allowed_token_is_text_and_stops(node: LMSubmodule, call: Call) -> None:
    outputs = run(node, call, 7)
    assert (outputs["token"], outputs["text_tokens"]) == (7, Many((7,), cut=True))
    usage = outputs["usage"]
    assert isinstance(usage, Mapping)
    assert (usage["generated"], usage["reason"]) == (call.settings["max_tokens"], "length")


def test_one_token_before_the_limit_goes_on(node: LMSubmodule) -> None:
    assert run(node, decode(5, drawn=3, max_tokens=5), 7)["usage"] is None


def test_the_models_last_position_stops(node: LMSubmodule) -> None:
    most = node.network.config.max_positions
    [row] = node.collate([decode(5)]).rows
    assert node._account(decode(5, length=most - 1), 7, row)[1] is not None
    assert node._account(decode(5, length=most - 2), 7, row)[1] is None


@pytest.mark.parametrize(
    ("call", "param"),
    [
        (prefill([]), "tokens"),
        (prefill([5, 431]), "tokens"),
        (prefill([-1]), "tokens"),
        (prefill([5] * 32769), "tokens"),
        (prefill([5], max_tokens=0), "max_tokens"),
        (prefill([5], max_tokens="9"), "max_tokens"),
    ],
)
def test_bad_input_is_refused_by_name(node: LMSubmodule, call: Call, param: str) -> None:
    with pytest.raises(Rejected) as raised:
        node.keys(call)
    assert raised.value.param == param


def test_settings_are_checked() -> None:
    with pytest.raises(WeightsError, match="llm_kernel 'int3'"):
        language_model({"llm": str(CASE), "llm_kernel": "int3"})
    with pytest.raises(WeightsError, match="llm must be"):
        language_model({})
