"""A convolutional ONNX graph that carries its state: chunks in, exactly the items that they determine out.

The graph of a non-causal stage (convolutions of stride 1 with symmetric zero padding, transposed convolutions,
channels cut and joined, element-wise operations) is rewritten so that every convolution reads `tail ‖ new ‖ closing
zeros` without padding of its own: the tail is what it has read before and still needs, a value that comes in as a graph
input and leaves as a graph output. At the start of a stream a tail is the layer's own left padding, at its end the
layer's right padding is appended, so that the first and the last sample see the same zeros as in one pass. Where two
branches of different reach meet, the faster one waits in a tail, too. Nothing is computed twice.

Streams are images one pixel high, [1, channels, 1, n]: onnxruntime's blocked convolution kernels take nothing else, and
are a fifth faster here on one thread.

`lag` of a tensor: how many of its items, at its own rate, are still open while the stream goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from models.piper.graph import Wiring, assemble, attributes, value_of
from models.piper.streams import CLOSING, FRAMES, Rewrite, Stream, Tail
from mstar.errors import WeightsError

OUT = "out"  # float32 [1, channels, 1, m]


@dataclass(frozen=True, slots=True)
class CarriedGraph:
    """What there is to know of a carried stage to run it."""

    tails: tuple[Tail, ...]
    channels: int  # of a frame
    hop: int  # items out per frame
    lag: int  # items out that a chunk leaves open
    first: int  # frames that the first chunk of a segment must have (a last chunk may have any number)


_POINTWISE = frozenset({"LeakyRelu", "Tanh", "Div", "Mul", "Add", "Sub", "Sigmoid", "Relu"})


def carry_state(model: ModelProto) -> tuple[ModelProto, CarriedGraph]:
    """Rewrite a stage whose first input is streaming [1, channels, frames], with one output [1, channels, items].

    A second input is its mask, which is 1 for all frames of a sound that is alone. WeightsError if it holds an
    operation that can not be carried.
    """
    wiring = Wiring.of(model.graph)
    (source, *masks), sink = (each.name for each in model.graph.input), model.graph.output[0].name
    weights = {**wiring.initializers, **dict(_constants(model))}
    channels = _channels(wiring, source)
    rewrite = Rewrite(weights, {source: Stream(FRAMES, 1, 0, channels)}, dict.fromkeys(masks, 1.0))
    for node in model.graph.node:
        if node.op_type == "Constant" or rewrite.alone(node):
            continue
        streaming = [name for name in node.input if name in rewrite.streams]
        match node.op_type, len(streaming):
            case _, 0:
                rewrite.nodes.append(node)
            case "Conv", 1:
                rewrite.conv(node)
            case "ConvTranspose", 1:
                rewrite.conv_transpose(node)
            case "Add" | "Sub" | "Mul", 2:
                rewrite.meet(node)
            case "Concat", _:
                rewrite.stacked(node)
            case "Slice", 1:
                rewrite.some_channels(node)
            case "Split", 1:
                rewrite.divided(node)
            case op, 1 if op in _POINTWISE:
                rewrite.pointwise(node)
            case op, _:
                raise WeightsError(f"voice: {node.name} ({op}) can not be carried over chunks")
    out = rewrite.streams[sink]
    rewrite.node("Identity", (out.name,), OUT)
    names = [t.name for t in rewrite.tails]
    made = assemble(
        rewrite.nodes,
        [value_of(FRAMES), value_of(CLOSING, TensorProto.INT64, 1), *(value_of(f"{n}.tail") for n in names)],
        [value_of(OUT), *(value_of(f"{n}.next") for n in names)],
        [*(_image_kernel(t) for t in weights.values()), *rewrite.constants.values()],
        model,
        "carried",
    )
    return made, CarriedGraph(tuple(rewrite.tails), channels, out.rate, out.lag, rewrite.reach + 1)


def _channels(wiring: Wiring, source: str) -> int:
    """Of the frames: read off the first convolution that they, or a part of them, reach."""
    share, name = 1, source
    while True:
        node = wiring.consumers[name][0]
        match node.op_type:
            case "Conv":
                return share * int(wiring.initializers[node.input[1]].dims[1])
            case "Split":
                share *= len(node.output)
            case "Slice":
                pass
            case kind:
                raise WeightsError(f"voice: its input goes to {node.name} ({kind})")
        name = node.output[0]


def _constants(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Tensors that nodes of the graph hold."""
    for node in model.graph.node:
        value = attributes(node).get("value")
        if node.op_type == "Constant" and isinstance(value, TensorProto):
            tensor = TensorProto()
            tensor.CopyFrom(value)
            tensor.name = node.output[0]
            yield tensor.name, tensor


def _image_kernel(weight: TensorProto) -> TensorProto:
    if len(weight.dims) != 3:
        return weight
    kernel = numpy_helper.to_array(weight)[:, :, None, :]  # [out, in, 1, kernel]
    return numpy_helper.from_array(np.ascontiguousarray(kernel), weight.name)
