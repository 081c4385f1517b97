"""What a worker's steps were like since it began, and how full its streams are."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mstar.engine.api import Firing
from mstar.tensors import Value
from mstar.worker.state import RequestState

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper ends of the buckets of durations."""
SIZES = (1, 2, 4, 8, 16, 32)
"""Upper ends of the buckets of batch sizes."""


class Distribution:
    """Counts of values by bucket; a bucket holds values up to its bound, the last one all others."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def told(self) -> Mapping[str, Value]:
        """`counts` has one more than `bounds`."""
        return {"bounds": list(self._bounds), "counts": list(self._counts), "sum": self._sum}


class Measures:
    """One per worker: as many distributions as its graphs have components and nodes, whatever runs."""

    def __init__(self) -> None:
        self._batches: dict[str, Distribution] = {}  # component → sizes
        self._steps: dict[tuple[str, str], Distribution] = {}  # (component, node) → seconds
        self._dropped: Counter[tuple[str, str, str]] = (
            Counter()
        )  # (family, stream, partition) → items of ended requests

    def step(self, firing: Firing, batch: int, seconds: float) -> None:
        """A step of `batch` firings like this one was executed."""
        sizes = self._batches.get(firing.component)
        if sizes is None:
            sizes = self._batches[firing.component] = Distribution(SIZES)
        sizes.add(batch)
        key = (firing.component, firing.node)
        times = self._steps.get(key)
        if times is None:
            times = self._steps[key] = Distribution(SECONDS)
        times.add(seconds)

    def ended(self, request: RequestState) -> None:
        """The request's streams go: what they dropped still counts."""
        self._dropped += _dropped([request])

    def told(self, requests: Sequence[RequestState]) -> Mapping[str, Value]:
        """`batches` by component, `steps` by node: lists of `{family, component[, node], bounds, counts, sum}`;
        `streams`: `{family, stream, partition, depth, dropped}`, those of `requests` and what others dropped before.
        """
        dropped = self._dropped + _dropped(requests)
        depths = _depths(requests)
        return {
            "batches": [{**_names(name), **sizes.told()} for name, sizes in self._batches.items()],
            "steps": [{**_names(name), "node": node, **times.told()} for (name, node), times in self._steps.items()],
            "streams": [
                {"family": key[0], "stream": key[1], "partition": key[2], "depth": depths[key], "dropped": dropped[key]}
                for key in sorted({*depths, *dropped})
            ],
        }


def _names(component: str) -> Mapping[str, Value]:
    family, _, name = component.rpartition("/")
    return {"family": family, "component": name}


def _dropped(requests: Iterable[RequestState]) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for request in requests:
        for (stream, partition), buffer in request.buffers.items():
            found[request.session.family.name, stream, partition] += buffer.dropped
    return found


def _depths(requests: Iterable[RequestState]) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for request in requests:
        for (stream, partition), buffer in request.buffers.items():
            found[request.session.family.name, stream, partition] += buffer.depth
    return found
