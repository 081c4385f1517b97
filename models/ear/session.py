"""A session of onnxruntime that keeps to its share of the cores."""

from __future__ import annotations

from pathlib import Path

import onnxruntime

from mstar.errors import WeightsError


def open_session(path: Path, *, threads: int, inputs: tuple[str, ...]) -> onnxruntime.InferenceSession:
    """The ONNX model at `path` on the CPU with `threads` threads that do not spin while they wait.

    Raises WeightsError when the file can not be read or its inputs are not the ones named.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not path.is_file():
        raise WeightsError(f"{path}: no such file")
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise WeightsError(f"{path}: {' '.join(str(error).split())}") from error
    found = tuple(part.name for part in session.get_inputs())
    if found != inputs:
        raise WeightsError(f"{path}: the inputs are {', '.join(found)}, expected {', '.join(inputs)}")
    return session
