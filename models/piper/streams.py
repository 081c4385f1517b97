"""The rewriting of a decoder's operations, one by one, into such that carry their state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from models.piper.graph import attributes
from mstar.errors import WeightsError

CLOSING = "closing"  # int64 [4]: (1, 1, 1, 0), or (1, 1, 1, 1) on a segment's last chunk
FRAMES = "frames"  # float32 [1, channels, 1, n]
_FAR = 2**31 - 1
_END = np.iinfo(np.int64).max
_CHANNELS = 1  # axis


@dataclass(frozen=True, slots=True)
class Tail:
    """A carried tensor [1, channels, 1, length]; `start` zeros at the beginning of a segment."""

    name: str
    channels: int
    start: int


@dataclass(frozen=True, slots=True)
class Stream:
    """A rewritten tensor: its name, items per frame, lag, channels."""

    name: str
    rate: int
    lag: int
    channels: int


@dataclass(slots=True)
class Rewrite:
    weights: dict[str, TensorProto]
    streams: dict[str, Stream]
    uniform: dict[str, float] = field(default_factory=dict)  # tensors whose items are all one number
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

    def joined(self, stream: Stream, key: str, start: int, closing: int) -> str:
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

    def together(self, node: NodeProto) -> list[Stream]:
        """The node's streams as they are where the slowest of them is: those with a smaller lag wait."""
        streams = [self.streams[name] for name in node.input]
        slow = max(streams, key=lambda stream: stream.lag)
        if any(stream.rate != slow.rate for stream in streams):
            raise WeightsError(f"decoder: {node.name} joins streams of different rates")
        return [
            stream if stream.lag == slow.lag else self.held(stream, slow, f"{node.output[0]}.{side}")
            for side, stream in enumerate(streams)
        ]

    def held(self, stream: Stream, slow: Stream, key: str) -> Stream:
        """Of the stream, as many items as there are of the slow one; the rest waits in a tail."""
        joined = self.joined(stream, key, 0, 0)
        size = self.length(slow.name, f"{key}.size")
        ready = self.cut(joined, self.ints(0), size, f"{key}.ready")
        self.carry(key, joined, size)
        return Stream(ready, stream.rate, slow.lag, stream.channels)

    def meet(self, node: NodeProto) -> None:
        """Element-wise operation on two streams."""
        a, b = self.together(node)
        if a.channels != b.channels:
            raise WeightsError(f"decoder: {node.name} joins streams of different shape")
        self.node(node.op_type, (a.name, b.name), node.output[0])
        self.emit(node.output[0], a.rate, a.lag, a.channels)

    def stacked(self, node: NodeProto) -> None:
        """Channels of several streams as one."""
        streams = self.together(node)
        if attributes(node).get("axis") != _CHANNELS:
            raise WeightsError(f"decoder: {node.name} joins streams along another axis than their channels")
        self.node("Concat", [each.name for each in streams], node.output[0], axis=_CHANNELS)
        self.emit(node.output[0], streams[0].rate, streams[0].lag, sum(each.channels for each in streams))

    def some_channels(self, node: NodeProto) -> None:
        """A range of the channels, or all of them in reverse."""
        x = self.streams[node.input[0]]
        [start], [end], axis, *step = (self.value(name) for name in node.input[1:])
        if axis != [_CHANNELS] and (start, end >= _FAR, step in ([], [[1]])) == (0, True, True):
            self.streams[node.output[0]] = x  # all of another axis
            return
        if axis != [_CHANNELS]:
            raise WeightsError(f"decoder: {node.name} cuts a stream along another axis than its channels")
        channels = len(range(*slice(start, end, step[0][0] if step else 1).indices(x.channels)))
        self.node("Slice", (x.name, *node.input[1:]), node.output[0])
        self.emit(node.output[0], x.rate, x.lag, channels)

    def divided(self, node: NodeProto) -> None:
        """Channels in groups of given sizes."""
        x = self.streams[node.input[0]]
        sizes = self.value(node.input[1]) if len(node.input) > 1 else []
        if attributes(node).get("axis") != _CHANNELS or sum(sizes) != x.channels:
            raise WeightsError(f"decoder: {node.name} does not divide the channels of a stream")
        self.nodes.append(helper.make_node("Split", (x.name, node.input[1]), node.output, axis=_CHANNELS))
        for name, channels in zip(node.output, sizes, strict=True):
            self.emit(name, x.rate, x.lag, channels)

    def pointwise(self, node: NodeProto) -> None:
        names = [self.streams[name].name if name in self.streams else name for name in node.input]
        [x] = [self.streams[name] for name in node.input if name in self.streams]
        self.node(node.op_type, names, node.output[0], **attributes(node))
        self.emit(node.output[0], x.rate, x.lag, x.channels)

    def alone(self, node: NodeProto) -> bool:
        """Whether the node needs no computing: what it makes is one number, or a stream that it leaves as it is."""
        if not node.input:
            return False
        key, [first, *others] = node.output[0], node.input
        match node.op_type:
            case "Shape" if first in self.streams:
                self.uniform[key] = np.nan  # its numbers play no part, only what is filled by them
            case "ConstantOfShape" if first in self.uniform:
                self.uniform[key] = _filling(node)
            case "Neg" if first in self.uniform:
                self.uniform[key] = -self.uniform[first]
            case "Exp" if first in self.uniform:
                self.uniform[key] = float(np.exp(self.uniform[first]))
            case "Mul" | "Add" if (number := self.uniform.get(others[0], self.uniform.get(first))) is not None:
                stream = first if first in self.streams else others[0]
                if number != (1.0 if node.op_type == "Mul" else 0.0):
                    raise WeightsError(f"decoder: {node.name} changes a stream by {number}")
                self.streams[key] = self.streams[stream]
            case _:
                return False
        return True

    def value(self, name: str) -> list[int]:
        """A constant of the graph."""
        return [int(each) for each in numpy_helper.to_array(self.weights[name])]

    def emit(self, name: str, rate: int, lag: int, channels: int) -> None:
        self.streams[name] = Stream(name, rate, lag, channels)
        self.reach = max(self.reach, lag // rate)


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


def _filling(node: NodeProto) -> float:
    value = attributes(node).get("value")
    return float(numpy_helper.to_array(value).item()) if isinstance(value, TensorProto) else 0.0
