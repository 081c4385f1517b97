"""ONNX graphs built in memory from a network's weights, for onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor

from models.blocks.quantise import GROUP, Grouped4, Grouped8

Activations = Literal["int8", "int16", "float32"]
"""What the products multiply the weights' codes with.

`int8`: activations rounded to 8 bits, one scale a group of 32. `int16`: the same, and what the rounding left out by the
same rule: twice the work, about 16 bits. `float32`: the weights are unpacked in every step: for many rows.
"""

_CONTRIB = "com.microsoft"
_OPSETS = (helper.make_opsetid("", 18), helper.make_opsetid(_CONTRIB, 1))
_IR_VERSION = 9


class GraphDraft:
    """A graph under construction; its methods add operators over [rows, width] float32 and return the result's name."""

    __slots__ = ("_activations", "_count", "_graph", "_made", "_model")

    def __init__(self, activations: Activations) -> None:
        self._activations = activations
        self._model = onnx.ModelProto(ir_version=_IR_VERSION, opset_import=_OPSETS)
        self._graph = self._model.graph  # filled in place: its constants are large
        self._graph.name = "draft"
        self._made: dict[tuple[str, str], str] = {}  # (what, tensor) → what was made of it
        self._count = 0

    def product(self, x: str, weight: Grouped4 | Grouped8, bias: Tensor | None = None) -> str:
        """x [rows, in] · weightᵀ → [rows, out].

        Codes are multiplied around 8 (of 4 bits) or 128 (of 8 bits). What the middle of a 4-bit group adds,
        (minimum + 8 · scale) · Σ x, is added in float32.
        """
        doubled = self._activations == "int16"
        width = weight.shape[1]
        if doubled or isinstance(weight, Grouped4):
            grouped = self._once("groups", x, partial(self._groups, x, doubled))
        if doubled:
            x = self._once("rows", grouped, partial(self._reshaped, grouped, width))
        y = self._coded(x, weight)
        if isinstance(weight, Grouped4):
            middle = self.constant((weight.minimum + 8 * weight.scale).T.float().numpy())  # [in / 32, out]
            y = self.node("Gemm", [self._once("sums", grouped, partial(self._sums, grouped, width)), middle, y])
        if doubled:
            kept, left = self.split(y, 2, axis=0)
            y = self.add(kept, left)
        return y if bias is None else self.add(y, self.constant(bias.float().numpy()))

    def norm(self, x: str, weight: Tensor, eps: float) -> str:
        """x / sqrt(mean(x²) + eps) · weight over the last dimension."""
        inputs = [x, self.constant(weight.float().numpy())]
        return self.node("SimplifiedLayerNormalization", inputs, axis=-1, epsilon=eps)

    def head_norms(self, x: str, weights: Sequence[Tensor], eps: float) -> str:
        """RMS norm of every head by a weight [dim] of its own: x [rows, heads · dim] → the same shape."""
        each = torch.stack(list(weights)).float()  # [heads, dim]
        split = self.node("Reshape", [x, self._shape(0, *each.shape)])
        scaled = self.node("Mul", [self.norm(split, torch.ones(each.shape[1]), eps), self.constant(each.numpy())])
        return self.node("Reshape", [scaled, self._shape(0, each.numel())])

    def gated(self, gate: str, up: str) -> str:
        """silu(gate) · up."""
        return self.node("Mul", [self.node("QuickGelu", [gate], domain=_CONTRIB, alpha=1.0), up])

    def add(self, a: str, b: str) -> str:
        """a + b; one of them may be a row that is added to all."""
        return self.node("Add", [a, b])

    def split(self, x: str, parts: int | Sequence[int], *, axis: int = 1) -> Sequence[str]:
        """x cut along an axis into so many equal parts, or into parts of these sizes."""
        if isinstance(parts, int):
            names = [self._name() for _ in range(parts)]
            node = helper.make_node("Split", [x], names, axis=axis, num_outputs=parts)
        else:
            names = [self._name() for _ in parts]
            node = helper.make_node("Split", [x, self._shape(*parts)], names, axis=axis)
        self._graph.node.append(node)
        return names

    def rotated(self, x: str, cos: str, sin: str) -> str:
        """Rotary embedding, halves layout: x [rows, heads · dim], cos and sin [rows, dim / 2] → [1, rows, heads · dim].

        Row i is turned by the angles in row i.
        """
        batch = self.node("Unsqueeze", [x, self._shape(0)])
        return self.node("RotaryEmbedding", [batch, self._shape(0), cos, sin], domain=_CONTRIB)

    def constant(self, array: np.ndarray) -> str:
        name = self._name()
        tensor = self._graph.initializer.add()
        tensor.name = name
        tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor.dims.extend(array.shape)
        tensor.raw_data = array.tobytes()
        return name

    def node(self, kind: str, inputs: Sequence[str], *, domain: str = "", **attributes: float) -> str:
        name = self._name()
        node = helper.make_node(kind, inputs, [name], domain=domain)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._graph.node.append(node)
        return name

    def model(self, inputs: Mapping[str, int], outputs: Sequence[str]) -> bytes:
        """The serialised model. inputs: name → width, each [rows, width] float32; outputs: tensors of the draft."""
        for name, width in inputs.items():
            self._graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width]))
        for name in outputs:
            self._graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        serialised: bytes = self._model.SerializeToString()
        return serialised

    def _coded(self, x: str, weight: Grouped4 | Grouped8, zero_point: str = "") -> str:
        """x · (codes · scale)ᵀ; codes count from the middle of their range, or from `zero_point`."""
        out, width = weight.shape
        inputs = [x, self.constant(_packed(weight)), self.constant(weight.scale.float().flatten().numpy())]
        return self.node(
            "MatMulNBits",
            [*inputs, zero_point] if zero_point else inputs,
            domain=_CONTRIB,
            K=width,
            N=out,
            bits=4 if isinstance(weight, Grouped4) else 8,
            block_size=GROUP,
            accuracy_level=1 if self._activations == "float32" else 4,
        )

    def _groups(self, x: str, doubled: bool) -> str:
        """x [rows, width] → [rows · width / 32, 32].

        `doubled`: what the product's rounding keeps of all rows, followed by what it leaves out of them. What it keeps
        of a group is the group's product with the identity, and stays as it is when rounded again.
        """
        grouped = self._reshaped(x, GROUP)
        if not doubled:
            return grouped
        identity = Grouped4(torch.eye(GROUP, dtype=torch.uint8), torch.ones(GROUP, 1), torch.zeros(GROUP, 1))
        kept = self._coded(grouped, identity, self.constant(np.zeros(GROUP, np.uint8)))
        return self.node("Concat", [kept, self.node("Sub", [grouped, kept])], axis=0)

    def _sums(self, grouped: str, width: int) -> str:
        """[rows · width / 32, 32] → [rows, width / 32]."""
        return self._reshaped(self.node("ReduceSum", [grouped, self._shape(1)], keepdims=0), width // GROUP)

    def _reshaped(self, x: str, width: int) -> str:
        return self.node("Reshape", [x, self._shape(-1, width)])

    def _once(self, what: str, x: str, make: Callable[[], str]) -> str:
        if (what, x) not in self._made:
            self._made[what, x] = make()
        return self._made[what, x]

    def _shape(self, *sizes: int) -> str:
        return self.constant(np.array(sizes, np.int64))

    def _name(self) -> str:
        self._count += 1
        return f"t{self._count}"


def _packed(weight: Grouped4 | Grouped8) -> np.ndarray:
    """Codes as the operator reads them, [out, in / 32, bytes of a group] uint8: even inputs in the low four bits."""
    if isinstance(weight, Grouped8):
        codes: np.ndarray = (weight.codes.view(torch.uint8) ^ 128).numpy()  # -128 … 127 → 0 … 255
        return codes.reshape(len(codes), -1, GROUP)
    pairs = weight.codes.contiguous().view(torch.int16)  # a pair is low + 256 · high
    packed: np.ndarray = (pairs | pairs >> 4).to(torch.uint8).numpy()
    return packed.reshape(len(packed), -1, GROUP // 2)
