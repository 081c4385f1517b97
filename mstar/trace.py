"""What a worker did, as rows: the raw material of waterfalls, graph drawings and counters (torch-free)."""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """One firing. `at` is the worker's clock in seconds at its start, `ms` its batch's duration."""

    at: float
    worker: str
    request: str
    component: str
    walk: str
    batch: int
    ms: float
    iteration: int
    new: int  # new stream items in its chunk, -1 without a streaming input
    first: int  # index of the chunk's first item, -1 without
    node: str = ""  # the use of the component that fired: a walk may have several
