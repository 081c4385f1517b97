"""What the runtime's processes last told of themselves, in Prometheus' words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from mstar.tensors import Value

Told = Mapping[str, Any]


class WorkerNumbers(Collector):
    """Numbers by process: a scrape asks for them, nothing is sent in between."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], Told] = {}  # (process, what) → answer
        self._workers: list[Told] = []

    def told(self, process: str, what: str, value: Value) -> None:
        """The answer of a process to "counters", "census" or "measures"."""
        if isinstance(value, Mapping):
            self._told[process, what] = value

    def listed(self, workers: Value) -> None:
        """The conductor's list of workers."""
        if isinstance(workers, list):
            self._workers = [worker for worker in workers if isinstance(worker, Mapping)]

    def describe(self) -> Iterable[Metric]:
        """Names, for documents and for who registers them; without samples."""
        return [*_families()]

    def collect(self) -> Iterator[Metric]:
        batches, steps, depth, dropped, pages, done, up, restarts, recovery, lost = families = _families()
        for process, measures in self._of("measures"):
            for each in measures["batches"]:
                _observed(batches, [process, each["family"], each["component"]], each)
            for each in measures["steps"]:
                _observed(steps, [process, each["family"], each["component"], each["node"]], each)
            for each in measures["streams"]:
                labels = [process, each["family"], each["stream"], each["partition"]]
                depth.add_metric(labels, each["depth"])
                dropped.add_metric(labels, each["dropped"])
        for process, census in self._of("census"):
            if "engine_pages_held" in census:
                held, live = census["engine_pages_held"], census["engine_pages_live"]
                for state, count in (("free", census["engine_pages_free"]), ("held", live), ("idle", held - live)):
                    pages.add_metric([process, state], count)
        for process, counters in self._of("counters"):
            if "steps" in counters:
                done.add_metric([process], counters["steps"])
            if "lost_requests" in counters:
                lost.add_metric([], counters["lost_requests"])
        for worker in self._workers:
            up.add_metric([worker["worker"]], float(worker["ready"]))
            restarts.add_metric([worker["worker"]], worker["restarts"])
            recovery.add_metric([worker["worker"]], worker["recovery_seconds"])
        yield from families

    def _of(self, what: str) -> Iterator[tuple[str, Told]]:
        return ((process, value) for (process, each), value in self._told.items() if each == what)


def _families() -> tuple[
    HistogramMetricFamily,
    HistogramMetricFamily,
    GaugeMetricFamily,
    CounterMetricFamily,
    GaugeMetricFamily,
    CounterMetricFamily,
    GaugeMetricFamily,
    CounterMetricFamily,
    GaugeMetricFamily,
    CounterMetricFamily,
]:
    stream = ["process", "family", "stream", "partition"]
    return (
        HistogramMetricFamily(
            "mstar_batch_size", "Requests that ran together in a step.", labels=["process", "family", "component"]
        ),
        HistogramMetricFamily(
            "mstar_node_seconds", "Duration of a step.", labels=["process", "family", "component", "node"]
        ),
        GaugeMetricFamily("mstar_stream_items", "Items that wait in streams.", labels=stream),
        CounterMetricFamily("mstar_stream_dropped", "Items that streams let go untaken.", labels=stream),
        GaugeMetricFamily(
            "mstar_kv_pages", "Pages of K/V: free, held by requests, or idle as a cache.", labels=["process", "state"]
        ),
        CounterMetricFamily("mstar_steps", "Steps that a worker has executed.", labels=["process"]),
        GaugeMetricFamily("mstar_worker_ready", "Whether a worker has loaded.", labels=["process"]),
        CounterMetricFamily("mstar_worker_restarts", "Times that a worker was replaced.", labels=["process"]),
        GaugeMetricFamily(
            "mstar_worker_recovery_seconds", "From a worker's last loss until it was ready again.", labels=["process"]
        ),
        CounterMetricFamily("mstar_lost_requests", "Requests that ended with their worker.", labels=[]),
    )


def _observed(family: HistogramMetricFamily, labels: list[str], told: Told) -> None:
    bounds = [*(str(float(bound)) for bound in told["bounds"]), "+Inf"]
    counts = accumulate(told["counts"])
    family.add_metric(labels, list(zip(bounds, counts, strict=True)), told["sum"])
