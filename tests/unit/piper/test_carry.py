"""A decoder that carries its state gives, chunk by chunk, the samples of one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from models.piper.carry import carry_state
from models.piper.split import split
from models.piper.voice import Floats, Voice, session
from mstar.errors import WeightsError
from tests.carried import Both, in_one_pass

VOICE = Path(__file__).parents[2] / "data" / "piper" / "voice.onnx"
FRAMES = 76


@pytest.fixture(scope="module")
def voice() -> Voice:
    return Voice.load(VOICE)


@pytest.fixture(scope="module")
def latents() -> Floats:
    return np.random.default_rng(3).standard_normal((FRAMES, 24), np.float32)


@pytest.fixture(scope="module")
def whole(voice: Voice, latents: Floats) -> Floats:
    """What the voice's own graph makes of the latents in one pass."""
    return in_one_pass(voice, latents)


def streamed(voice: Voice, latents: Floats, sizes: list[int]) -> list[Floats]:
    both = Both(voice)
    tails, parts, at = both.fresh(), [], 0
    for size in [*sizes, len(latents)]:
        stop = min(len(latents), at + (max(size, both.first) if at == 0 else size))
        part, tails = both.decode(latents[at:stop], tails, stop == len(latents))
        parts.append(part)
        at = stop
        if at == len(latents):
            break
    return parts


@pytest.mark.parametrize("size", [*range(1, 35), 48, 52, 75, FRAMES])
def test_every_chunk_size_gives_the_one_shot_wave(voice: Voice, latents: Floats, whole: Floats, size: int) -> None:
    parts = streamed(voice, latents, [size] * FRAMES)
    assert np.abs(np.concatenate(parts) - whole).max() <= 1e-5
    assert len(parts) == 1 + max(0, -(-(FRAMES - max(size, Both(voice).first)) // size))


@settings(deadline=None, max_examples=40)
@given(sizes=st.lists(st.integers(1, 20), max_size=FRAMES), length=st.integers(1, FRAMES))
def test_uneven_chunks_of_any_length(voice: Voice, latents: Floats, sizes: list[int], length: int) -> None:
    one = streamed(voice, latents[:length], [])
    many = streamed(voice, latents[:length], sizes)
    assert len(one[0]) == length * voice.hop
    assert np.abs(np.concatenate(many) - one[0]).max() <= 1e-5


def test_a_chunk_emits_exactly_what_it_determines(voice: Voice, latents: Floats) -> None:
    first, second, third = streamed(voice, latents, [44, 3])
    assert len(first) == 44 * voice.hop - Both(voice).lag
    assert len(second) == 3 * voice.hop
    assert len(third) == (FRAMES - 47) * voice.hop + Both(voice).lag
    other = latents.copy()
    other[47:] += 1  # what comes later changes nothing that was given out, but what is open
    changed = np.concatenate(streamed(voice, other, []))
    given_out = np.concatenate((first, second))
    assert np.abs(changed[: len(given_out)] - given_out).max() <= 1e-5
    lag = Both(voice).lag
    assert np.abs(changed[len(given_out) : len(given_out) + lag] - third[:lag]).max() > 1e-3


def test_the_end_may_come_with_one_frame(voice: Voice, latents: Floats, whole: Floats) -> None:
    both = Both(voice)
    head, tails = both.decode(latents[:-1], both.fresh(), last=False)
    rest, _ = both.decode(latents[-1:], tails, last=True)
    assert len(rest) == voice.hop + both.lag
    assert np.abs(np.concatenate((head, rest)) - whole).max() <= 1e-5


def test_hop_and_lag_are_read_from_the_graph(voice: Voice) -> None:
    assert (voice.hop, voice.flow.graph.channels, Both(voice).first) == (256, 24, 43)
    assert 42 * 256 < Both(voice).lag < 43 * 256
    assert voice.flow.graph.lag == 32


def _network(**conv: Any) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones((2, 2, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", ["z", "w"], ["y"], name="layer", **conv)]
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, None, None]) for n in ("z", "y")]
    return helper.make_model(helper.make_graph(nodes, "g", value[:1], value[1:], [weight]))


@pytest.mark.parametrize("conv", [{"pads": [2, 0]}, {"pads": [1, 1], "strides": [2]}, {"pads": [0, 0]}])
def test_what_can_not_be_carried_is_refused_by_name(conv: dict[str, Any]) -> None:
    with pytest.raises(WeightsError, match="layer"):
        carry_state(_network(**conv))


def test_a_graph_that_is_no_voice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="only single-speaker Piper voices"):
        split(_network(pads=[1, 1]))
    damaged = tmp_path / "v.onnx"
    damaged.write_bytes(b"\x00\xffnot a graph")
    with pytest.raises(WeightsError, match=r"v\.onnx\.json"):
        Voice.load(damaged)
    (tmp_path / "v.onnx.json").write_text(VOICE.with_name("voice.onnx.json").read_text())
    with pytest.raises(WeightsError, match=r"v\.onnx"):
        Voice.load(damaged)


class Network:
    """A random decoder over two channels: residuals over one and two convolutions, branches of different reach."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.rng = np.random.default_rng(draw(st.integers(0, 99)))

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    def weight(self, kernel: int) -> str:
        name = f"w{len(self.weights)}"
        values = self.rng.standard_normal((2, 2, kernel), np.float32) / np.float32(kernel)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def conv(self, x: str) -> str:
        kernel, dilation = self.draw(st.sampled_from([1, 3, 5, 7])), self.draw(st.integers(1, 4))
        pad = (kernel - 1) * dilation // 2
        return self.node("Conv", x, self.weight(kernel), kernel_shape=[kernel], dilations=[dilation], pads=[pad, pad])

    def up(self, x: str) -> str:
        kernel, stride = self.draw(st.sampled_from([(4, 2), (2, 2), (6, 2), (3, 1), (5, 3), (16, 8)]))
        pad = (kernel - stride) // 2
        return self.node(
            "ConvTranspose", x, self.weight(kernel), kernel_shape=[kernel], strides=[stride], pads=[pad, pad]
        )

    def block(self, x: str) -> str:
        inner = x
        for _ in range(self.draw(st.integers(1, 2))):
            inner = self.conv(self.node("LeakyRelu", inner, alpha=0.1))
        return self.node("Add", *self.draw(st.permutations([x, inner])))

    def model(self) -> onnx.ModelProto:
        x = self.conv("z")
        for _ in range(self.draw(st.integers(1, 2))):
            x = self.up(x)
            x = self.node("Add", self.block(x), self.block(self.block(x)))
        out = self.node("Tanh", self.conv(x))
        value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, None, None]) for n in ("z", out)]
        graph = helper.make_graph(self.nodes, "g", value[:1], value[1:], self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])
        made.ir_version = 8
        return made


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    return Network(draw).model()


@settings(deadline=None, max_examples=30)
@given(networks(), st.integers(1, 9), st.integers(0, 12))
def test_any_network_of_this_kind_can_be_carried(model: onnx.ModelProto, size: int, extra: int) -> None:
    rewritten, carried = carry_state(model)
    one, many = session(model, 1), session(rewritten, 1)
    z = np.random.default_rng(0).standard_normal((1, 2, carried.first + extra), np.float32)
    [whole] = one.run(None, {"z": z})
    tails = [np.zeros((1, t.channels, 1, t.start), np.float32) for t in carried.tails]
    parts, at = [], 0
    while at < z.shape[2]:
        stop = min(z.shape[2], at + (max(size, carried.first) if at == 0 else size))
        feed = {f"{t.name}.tail": value for t, value in zip(carried.tails, tails, strict=True)}
        feed |= {"frames": z[:, :, None, at:stop], "closing": np.array([1, 1, 1, int(stop == z.shape[2])])}
        part, *tails = many.run(None, feed)
        parts.append(part)
        at = stop
    found = np.concatenate(parts, axis=3)[:, :, 0]
    assert found.shape == whole.shape
    assert np.abs(found - whole).max() <= 1e-5
    assert whole.shape[2] == z.shape[2] * carried.hop
