"""Graphs of `models.blocks.onnx_graph` on onnxruntime, beside torch and its threads.

onnxruntime multiplies one row by another algorithm than several, and cuts a product over its threads every 128 rows, so
that a lone last row would be multiplied alone. Where no part is one row, a row's result is the same, bit for bit,
whatever rows are beside it. `padded_rows` is the count to give to products of `int8` and `float32` activations; those
of `int16` have twice the rows, so that it never happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import onnxruntime
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors
from torch import Tensor

from models.blocks.onnx_graph import Activations, GraphDraft
from models.blocks.quantise import GROUP, Grouped4, Grouped8, quantise4, quantise8

_CUT = 128  # rows
_REFUSALS = (ort_errors.Fail, ort_errors.InvalidGraph, ort_errors.NotImplemented, ort_errors.RuntimeException)


def padded_rows(rows: int) -> int:
    """The least number of rows from `rows` on at which no row is multiplied alone."""
    return rows + 1 if rows % _CUT == 1 else rows


def padded(x: Tensor) -> Tensor:
    """x [rows, …] as contiguous float32 with zeros appended up to `padded_rows`."""
    rows = padded_rows(x.shape[0])
    if rows == x.shape[0]:
        return x.contiguous()
    return torch.cat((x, x.new_zeros(1, *x.shape[1:])))


class GraphSession:
    """A serialised graph, ready to run with as many threads as torch has."""

    __slots__ = ("_names", "_session")

    def __init__(self, model: bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # drafted as it shall run
        options.enable_cpu_mem_arena = False  # else every session keeps memory for the longest step it saw
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._session._model_bytes = b""  # noqa: SLF001 - kept to open the session anew, as large as the weights
        self._names = [output.name for output in self._session.get_outputs()]

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
        """Outputs in the draft's order, in memory of their own. Inputs are contiguous float32 and are not copied."""
        outputs: Sequence[np.ndarray] = self._session.run(self._names, inputs)
        return outputs


@cache
def has_products() -> bool:
    """Whether this onnxruntime has the products, right and row by row the same: tried on small ones."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 3 * GROUP, generator=generator)
    four, eight = quantise4(weight), quantise8(weight)
    kinds: Sequence[tuple[Activations, Grouped4 | Grouped8]] = (
        ("int8", eight),
        ("int8", four),
        ("int16", four),
        ("float32", four),
    )
    return all(_works(kind, stored, generator) for kind, stored in kinds)


def _works(activations: Activations, weight: Grouped4 | Grouped8, generator: torch.Generator) -> bool:
    draft = GraphDraft(activations)
    x = torch.randn(5, weight.shape[1], generator=generator)
    try:
        session = GraphSession(draft.model({"x": weight.shape[1]}, [draft.product("x", weight)]))
        [whole], [part] = session({"x": x.numpy()}), session({"x": x[2:4].numpy()})
    except _REFUSALS:
        return False
    wanted = x @ weight.dense().T
    close = (torch.from_numpy(whole) - wanted).norm() <= 0.02 * wanted.norm()
    return bool(close) and np.array_equal(whole[2:4], part)
