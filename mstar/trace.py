"""What a worker did, as rows: the raw material of waterfalls, graph drawings and counters (torch-free)."""

from __future__ import annotations

from collections import deque
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


class Trace:
    """The last `capacity` records of a process."""

    def __init__(self, capacity: int = 4096) -> None:
        self.records: deque[Record] = deque(maxlen=capacity)
        self.count = 0

    def add(self, record: Record) -> None:
        self.count += 1
        self.records.append(record)
