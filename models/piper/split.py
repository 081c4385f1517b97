"""A Piper voice's one ONNX graph as three stages: prior | flow | decoder.

The prior reads the whole clause; flow and decoder look at a frame's neighbours only.

The exported graph draws its noise inside; here the two draws are inputs, so that a call's seed decides what it sounds
like and batch mates do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from onnx import ModelProto, TensorProto

from models.piper.graph import Wiring, subgraph, value_of
from mstar.errors import WeightsError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stages:
    """Sub-graphs of a voice and the names of their tensors (`*_in` in the order of the graph's inputs)."""

    prior: ModelProto  # input, input_lengths, scales, noise → durations, mean, deviation, mask
    prior_in: tuple[str, str, str, str]
    prior_out: tuple[str, str, str, str]
    flow: ModelProto  # z_p [1, c, frames], mask → z [1, c, frames]
    flow_in: tuple[str, str]
    decoder: ModelProto  # z → wave [1, 1, samples]
    decoder_in: str


def split(model: ModelProto) -> Stages:
    """Cut a single-speaker Piper voice. WeightsError if its graph is of another layout."""
    wiring = Wiring.of(model.graph)
    inputs = [i.name for i in model.graph.input]
    if inputs != ["input", "input_lengths", "scales"]:
        raise WeightsError(f"voice: inputs are {inputs}; only single-speaker Piper voices are served")
    durations = _one([n.output[0] for n in model.graph.node if n.op_type == "Ceil"], "Ceil (durations)")
    before = wiring.ancestors([durations])
    draws = [n for n in model.graph.node if n.op_type == "RandomNormalLike"]
    duration_draw = _one([n.output[0] for n in draws if n.output[0] in before], "noise of the duration predictor")
    prior_draw = _one([n.output[0] for n in draws if n.output[0] not in before], "noise of the prior")
    scaled = wiring.only_consumer(prior_draw)  # noise * deviation
    deviation = next(name for name in scaled.input if name != prior_draw)
    added = wiring.walk(prior_draw, "Add")  # mean + noise * deviation * noise_scale
    mean = _one([n for n in added.input if prior_draw not in wiring.ancestors([n])], "mean of the prior")
    z_p = added.output[0]

    entry = _one([n for n in model.graph.node if "dec.conv_pre.weight" in n.input], "dec.conv_pre")
    exit_ = wiring.producer[model.graph.output[0].name]
    while exit_.op_type in ("Unsqueeze", "Squeeze", "Identity"):
        exit_ = wiring.producer[exit_.input[0]]
    z, wave = entry.input[0], exit_.output[0]
    flow_in = wiring.boundary([z], z_p)
    if len(flow_in) != 2 or wiring.boundary([wave], z) != (z,):
        raise WeightsError("voice: flow or decoder reads tensors that a single-speaker voice does not have")
    mask = flow_in[1]

    int64 = TensorProto.INT64
    prior_in = ("input", "input_lengths", "scales", duration_draw)
    prior_out = (durations, mean, deviation, mask)
    values = [value_of("input", int64, 2), value_of("input_lengths", int64, 1), value_of("scales", rank=1)]
    prior = subgraph(wiring, model, [*values, value_of(duration_draw)], [value_of(n) for n in prior_out], "prior")
    flow = subgraph(wiring, model, [value_of(z_p), value_of(mask)], [value_of(z)], "flow")
    decoder = subgraph(wiring, model, [value_of(z)], [value_of(wave)], "decoder")
    return Stages(prior, prior_in, prior_out, flow, (z_p, mask), decoder, z)


def _one(found: list[T], what: str) -> T:
    if len(found) != 1:
        raise WeightsError(f"voice: found {len(found)} nodes for {what}, expected one")
    return found[0]
