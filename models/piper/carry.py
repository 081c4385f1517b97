"""A convolutional ONNX decoder that carries its state: chunks in, exactly the samples they determine out.

The graph of a non-causal decoder (convolutions of stride 1 with symmetric zero padding, transposed convolutions,
element-wise operations) is rewritten so that every convolution reads `tail ‖ new ‖ closing zeros` without padding of
its own: the tail is what it has read before and still needs, a value that comes in as a graph input and leaves as a
graph output. At the start of a stream a tail is the layer's own left padding, at its end the layer's right padding is
appended, so that the first and the last sample see the same zeros as in one pass. Where two branches of different reach
meet, the faster one waits in a tail, too. Nothing is computed twice.

Streams are images one pixel high, [1, channels, 1, n]: onnxruntime's blocked convolution kernels take nothing else, and
are a fifth faster here on one thread.

`lag` of a tensor: how many of its items, at its own rate, are still open while the stream goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from models.piper.graph import Wiring, assemble, attributes, value_of
from mstar.errors import WeightsError

CLOSING = "closing"  # int64 [4]: (1, 1, 1, 0), or (1, 1, 1, 1) on a segment's last chunk
FRAMES = "frames"  # float32 [1, channels, 1, n]
AUDIO = "audio"  # float32 [1, 1, 1, m]
_END = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Tail:
    """A carried tensor [1, channels, 1, length]; `start` zeros at the beginning of a segment."""

    name: str
    channels: int
    start: int


@dataclass(frozen=True, slots=True)
class CarriedGraph:
    model: ModelProto
    tails: tuple[Tail, ...]
    channels: int  # of a frame
    hop: int  # samples per frame
    lag: int  # samples that a chunk leaves open
    first: int  # frames that the first chunk of a segment must have (a last chunk may have any number)


@dataclass(frozen=True, slots=True)
class _Stream:
    """A rewritten tensor: its name, items per frame, lag, channels."""

    name: str
    rate: int
    lag: int
    channels: int


@dataclass(slots=True)
class _Rewrite:
    weights: dict[str, TensorProto]
    streams: dict[str, _Stream]
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, TensorProto] = field(default_factory=dict)
    tails: list[Tail] = field(default_factory=list)
    reach: int = 0  # frames

    def node(self, op: str, inputs: Sequence[str], output: str, **attrs: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attrs))
        return output

    def ints(self, *values: int) -> str:
        name = "ints_" + "_".join(map(str, values))
        self.constants[name] = numpy_helper.from_array(np.array(values, np.int64), name)
        return name

    def cut(self, source: str, start: str, end: str, output: str) -> str:
        return self.node("Slice", (source, start, end, self.ints(3)), output)

    def length(self, source: str, output: str) -> str:
        return self.node("Shape", (source,), output, start=3, end=4)

    def joined(self, stream: _Stream, key: str, start: int, closing: int) -> str:
        """tail ‖ stream ‖ `closing` zeros on the last chunk; the caller says what the new tail is with `carry`."""
        self.tails.append(Tail(key, stream.channels, start))
        parts = [f"{key}.tail", stream.name]
        if closing:
            shape = self.node("Mul", (self.ints(1, stream.channels, 1, closing), CLOSING), f"{key}.right_shape")
            parts.append(self.node("ConstantOfShape", (shape,), f"{key}.right"))
        return self.node("Concat", parts, f"{key}.joined", axis=3)

    def carry(self, key: str, joined: str, start: str) -> None:
        self.cut(joined, start, self.ints(_END), f"{key}.next")

    def conv(self, node: NodeProto) -> None:
        x, weight = self.streams[node.input[0]], self.weights[node.input[1]]
        attrs = attributes(node)
        dilation, kernel, pads, stride = _geometry(attrs, weight)
        reach = (kernel - 1) * dilation
        if stride != 1 or pads[0] * 2 != reach or pads[1] != pads[0]:
            raise WeightsError(f"decoder: {node.name} is not a same-padded convolution of stride 1")
        key = node.output[0]
        if reach == 0:
            self.node("Conv", (x.name, *node.input[1:]), key, **_image(attrs, 0))
        else:
            joined = self.joined(x, key, pads[0], pads[0])
            self.carry(key, joined, self.ints(-reach))
            self.node("Conv", (joined, *node.input[1:]), key, **_image(attrs, 0))
        self.emit(key, x.rate, x.lag + pads[0], weight.dims[0])

    def conv_transpose(self, node: NodeProto) -> None:
        x, weight = self.streams[node.input[0]], self.weights[node.input[1]]
        attrs = attributes(node)
        dilation, kernel, pads, stride = _geometry(attrs, weight)
        pad = pads[0]
        if dilation != 1 or pads[1] != pad or kernel - stride != 2 * pad or attrs.get("output_padding", [0]) != [0]:
            raise WeightsError(f"decoder: {node.name} does not map n items to n times its stride")
        before = -(-kernel // stride) - 1  # earlier items that a new output still needs
        key = node.output[0]
        if before == 0:
            self.node("ConvTranspose", (x.name, *node.input[1:]), key, **_image(attrs, 0))
            self.emit(key, x.rate * stride, x.lag * stride, weight.dims[1])
            return
        joined = self.joined(x, key, 0, 0)
        self.carry(key, joined, self.ints(-before))
        raw = self.node("ConvTranspose", (joined, *node.input[1:]), f"{key}.raw", **_image(attrs, pad))
        # of what the tail and the new items give, all but the last pad of the tail's share were given out before
        held = self.node("Mul", (self.length(f"{key}.tail", f"{key}.held"), self.ints(stride)), f"{key}.share")
        given = self.node("Sub", (held, self.ints(pad)), f"{key}.given")
        start = self.node("Max", (given, self.ints(0)), f"{key}.begin")
        last = self.last_chunk(f"{key}.is_last")
        ending = self.node("Sub", (self.ints(1), last), f"{key}.goes_on")
        short = self.node("Mul", (ending, self.ints(pad)), f"{key}.open")
        end = self.node("Sub", (self.length(raw, f"{key}.raw_length"), short), f"{key}.end")
        self.cut(raw, start, end, key)
        self.emit(key, x.rate * stride, x.lag * stride + pad, weight.dims[1])

    def last_chunk(self, output: str) -> str:
        """int64 [1]: 1 on a segment's last chunk."""
        return self.node("Slice", (CLOSING, self.ints(3), self.ints(4), self.ints(0)), output)

    def meet(self, node: NodeProto) -> None:
        """Element-wise operation on two streams: the one with the smaller lag waits."""
        a, b = (self.streams[name] for name in node.input)
        if a.rate != b.rate or a.channels != b.channels:
            raise WeightsError(f"decoder: {node.name} joins streams of different shape")
        key = node.output[0]
        slow, names = max(a.lag, b.lag), []
        for side, stream in (("a", a), ("b", b)):
            if stream.lag == slow:
                names.append(stream.name)
                continue
            held = f"{key}.{side}"
            joined = self.joined(stream, held, 0, 0)
            size = self.length((b if side == "a" else a).name, f"{held}.size")
            names.append(self.cut(joined, self.ints(0), size, f"{held}.ready"))
            self.carry(held, joined, size)
        self.node(node.op_type, names, key)
        self.emit(key, a.rate, slow, a.channels)

    def pointwise(self, node: NodeProto) -> None:
        [x] = [self.streams[name] for name in node.input if name in self.streams]
        self.nodes.append(node)
        self.emit(node.output[0], x.rate, x.lag, x.channels)

    def emit(self, name: str, rate: int, lag: int, channels: int) -> None:
        self.streams[name] = _Stream(name, rate, lag, channels)
        self.reach = max(self.reach, lag // rate)


_POINTWISE = frozenset({"LeakyRelu", "Tanh", "Div", "Mul", "Add", "Sub", "Sigmoid", "Relu"})


def carry_state(model: ModelProto) -> CarriedGraph:
    """Rewrite a decoder with one streaming input [1, channels, frames] and one output [1, 1, samples].

    WeightsError if it holds an operation that can not be carried.
    """
    wiring = Wiring.of(model.graph)
    source, sink = model.graph.input[0].name, model.graph.output[0].name
    weights = dict(wiring.initializers)
    first = next(n for n in model.graph.node if source in n.input)
    channels = weights[first.input[1]].dims[1]
    rewrite = _Rewrite(weights, {source: _Stream(FRAMES, 1, 0, channels)})
    rewrite.node("Identity", (FRAMES,), source)
    for node in model.graph.node:
        streaming = [name for name in node.input if name in rewrite.streams]
        match node.op_type, len(streaming):
            case _, 0:
                rewrite.nodes.append(node)
            case "Conv", 1:
                rewrite.conv(node)
            case "ConvTranspose", 1:
                rewrite.conv_transpose(node)
            case "Add", 2:
                rewrite.meet(node)
            case op, 1 if op in _POINTWISE:
                rewrite.pointwise(node)
            case op, _:
                raise WeightsError(f"decoder: {node.name} ({op}) can not be carried over chunks")
    out = rewrite.streams[sink]
    rewrite.node("Identity", (sink,), AUDIO)
    names = [t.name for t in rewrite.tails]
    made = assemble(
        rewrite.nodes,
        [value_of(FRAMES), value_of(CLOSING, TensorProto.INT64, 1), *(value_of(f"{n}.tail") for n in names)],
        [value_of(AUDIO), *(value_of(f"{n}.next") for n in names)],
        [*(_image_kernel(t) for t in weights.values()), *rewrite.constants.values()],
        model,
        "carried_decoder",
    )
    return CarriedGraph(made, tuple(rewrite.tails), channels, out.rate, out.lag, rewrite.reach + 1)


def _geometry(attrs: dict[str, object], weight: TensorProto) -> tuple[int, int, tuple[int, int], int]:
    """(dilation, kernel, (left, right) padding, stride) of a one-dimensional convolution."""

    def one(name: str, default: int) -> int:
        got = attrs.get(name, [default])
        assert isinstance(got, list) and len(got) == 1
        return int(got[0])

    pads = attrs.get("pads", [0, 0])
    assert isinstance(pads, list) and len(pads) == 2
    return one("dilations", 1), int(weight.dims[2]), (int(pads[0]), int(pads[1])), one("strides", 1)


def _image(attrs: dict[str, object], pad: int) -> dict[str, object]:
    """Attributes of the two-dimensional convolution over a height of one."""
    wide: dict[str, object] = {"pads": [0, pad, 0, pad]}
    for name in ("dilations", "kernel_shape", "strides"):
        if isinstance(got := attrs.get(name), list):
            wide[name] = [1, *got]
    return wide | ({"group": attrs["group"]} if "group" in attrs else {})


def _image_kernel(weight: TensorProto) -> TensorProto:
    if len(weight.dims) != 3:
        return weight
    kernel = numpy_helper.to_array(weight)[:, :, None, :]  # [out, in, 1, kernel]
    return numpy_helper.from_array(np.ascontiguousarray(kernel), weight.name)
