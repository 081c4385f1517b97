"""Logits from 8-bit weights, with the leading candidates computed again from the stored weights."""

from __future__ import annotations

import torch
from torch import Tensor

from models.blocks.linear import Int8Linear, Linear
from models.blocks.onnx_graph import GraphDraft
from models.blocks.onnx_session import GraphSession, padded
from models.blocks.quantise import Stored, dense, quantise8, rows

_CANDIDATES = 32


class RefinedHead:
    """Two stages: all logits from a coarse product, then the 32 largest of these in float32 from the stored weights.

    A coarse product errs by about a hundredth of the logits' spread, so that close candidates tie or change places;
    the second stage costs a tenth of the first. A row's result does not depend on the other rows.
    """

    __slots__ = ("_coarse", "_weight")

    def __init__(self, weight: Stored, coarse: Linear) -> None:
        self._weight = weight  # [vocab, hidden]
        self._coarse = coarse

    def __call__(self, hidden: Tensor) -> Tensor:
        """hidden [n, hidden] float32 → logits [n, vocab] float32."""
        logits = self._coarse(hidden).float()
        leading = logits.topk(min(_CANDIDATES, logits.shape[1]), dim=-1).indices  # [n, 32]
        weights = rows(self._weight, leading.flatten()).unflatten(0, leading.shape)  # [n, 32, hidden]
        return logits.scatter_(1, leading, (weights * hidden[:, None, :]).sum(-1))


class GraphLinear:
    """A product of onnxruntime with 4-bit or 8-bit weights, whose codes it keeps if it has them, float32 in and out."""

    __slots__ = ("_graph",)

    def __init__(self, weight: Stored) -> None:
        """weight [out, in], `in` a multiple of 32."""
        stored = quantise8(weight) if isinstance(weight, Tensor) else weight
        draft = GraphDraft("int8")
        self._graph = GraphSession(draft.model({"x": stored.shape[1]}, [draft.product("x", stored)]))

    def __call__(self, x: Tensor) -> Tensor:
        [out] = self._graph({"x": padded(x).numpy()})
        return torch.from_numpy(out)[: x.shape[0]]


def refined_head(weight: Stored, *, fused: bool) -> RefinedHead:
    """`fused`: the coarse product is onnxruntime's, with 8 bits a group of 32; else torch's, with 8 bits a word."""
    return RefinedHead(weight, GraphLinear(weight) if fused else Int8Linear(dense(weight)))
