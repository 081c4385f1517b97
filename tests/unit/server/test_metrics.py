"""The document of the metrics names what there is; what only faults move, moves; sums stay true."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from models.toy.model import CONVERSATION
from mstar.client import Session
from server.metrics import Metrics
from server.metrics_workers import WorkerNumbers
from server.pump import Pump
from server.session.commands import BargedIn, Underran
from server.session.core import SessionCore
from server.session.options import Options
from server.traces import Traces
from server.watch import Watch
from tests.unit.server.metric_names import documented


@runtime_checkable
class Describing(Protocol):
    def describe(self) -> Iterable[Metric]: ...


def exposed(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def test_the_document_names_every_metric_with_its_type_and_labels() -> None:
    metrics = Metrics()
    there = set()
    for collector in set(metrics.registry._names_to_collectors.values()):
        assert isinstance(collector, Describing)
        for metric in collector.describe():
            labels = getattr(collector, "_labelnames", ()) or getattr(metric, "_labelnames", ())
            there.add((exposed(metric), metric.type, tuple(str(label).strip() for label in labels)))
    assert documented() == there


def test_names_follow_the_conventions() -> None:
    for name, kind, labels in documented():
        assert name.startswith("mstar_")
        assert name.endswith("_total") == (kind == "counter")
        assert not any(label in {"session", "request", "user", "le"} for label in labels)  # without bound


class Nobody:
    """A client's end that takes everything."""

    def send(self, *_: object) -> None: ...
    def play(self, *_: object) -> None: ...
    def clear(self, *_: object) -> None: ...
    def end(self, *_: object) -> None: ...


async def test_sound_that_came_too_late_and_interruptions_are_counted() -> None:
    metrics = Metrics()
    core = SessionCore(CONVERSATION, "toy", Options(), lambda kind: kind, 0.0, 0)
    async with asyncio.TaskGroup() as group:
        runtime = Session(None, "s", "toy")  # type: ignore[arg-type]
        traces = Traces()
        traces.begin(runtime, 0.0)
        pump = Pump(core, runtime, Nobody(), group, lambda: 0.0, Watch(metrics, traces.of(runtime)))
        pump.run([Underran("resp_1"), Underran("resp_2"), BargedIn(0.07)])
        pump.stop()
    assert metrics.registry.get_sample_value("mstar_underruns_total") == 2
    assert metrics.registry.get_sample_value("mstar_barge_in_seconds_bucket", {"le": "0.1"}) == 1
    assert metrics.registry.get_sample_value("mstar_barge_in_seconds_bucket", {"le": "0.05"}) == 0


def test_faults_are_counted_from_the_start() -> None:
    text = Metrics().text().decode()
    for name in ("mstar_sessions_failed_total 0.0", "mstar_runtime_silent_total 0.0", "mstar_underruns_total 0.0"):
        assert name in text


def test_distributions_of_workers_become_histograms() -> None:
    metrics = Metrics()
    assert isinstance(metrics.workers, WorkerNumbers)
    told = {"bounds": [1, 2], "counts": [3, 0, 1], "sum": 12.0}
    measures = {
        "batches": [{"family": "f", "component": "LM", **told}],
        "steps": [{"family": "f", "component": "LM", "node": "LM", **told}],
        "streams": [{"family": "f", "stream": "s", "partition": "p", "depth": 4, "dropped": 2}],
    }
    metrics.workers.told("worker.a", "measures", measures)  # type: ignore[arg-type]
    metrics.workers.told("worker.a", "census", {"engine_pages_free": 5, "engine_pages_held": 7, "engine_pages_live": 4})
    metrics.workers.listed([{"worker": "worker.a", "ready": False, "restarts": 2, "recovery_seconds": 3.5}])
    metrics.workers.told("conductor", "counters", {"lost_requests": 6})
    families = {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}
    batches = {(sample.name, sample.labels.get("le")): sample.value for sample in families["mstar_batch_size"].samples}
    assert batches["mstar_batch_size_bucket", "1.0"] == 3
    assert batches["mstar_batch_size_bucket", "2.0"] == 3
    assert batches["mstar_batch_size_bucket", "+Inf"] == batches["mstar_batch_size_count", None] == 4
    pages = {sample.labels["state"]: sample.value for sample in families["mstar_kv_pages"].samples}
    assert pages == {"free": 5, "held": 4, "idle": 3}
    [dropped] = families["mstar_stream_dropped"].samples
    assert dropped.value == 2
    [ready] = families["mstar_worker_ready"].samples
    assert ready.value == 0
    names = ("mstar_worker_restarts", "mstar_worker_recovery_seconds", "mstar_lost_requests")
    assert [families[name].samples[0].value for name in names] == [2, 3.5, 6]
