"""A worker as a process: message loop on the main thread, steps on the compute thread."""

from __future__ import annotations

import os

from mstar.bus.zeromq import ZmqEndpoint
from mstar.client.client import CONDUCTOR
from mstar.client.run import Run
from mstar.clock import MonotonicClock
from mstar.messages import WorkerReady
from mstar.node import loading
from mstar.node.life import Life
from mstar.transport.choose import transport_of
from mstar.worker.build import build_worker
from mstar.worker.executor import ComputeThread

PROGRESS_SECONDS = 1.0


def run_worker(run: Run, name: str, life: int) -> None:
    """Load the weights, say so, serve until told to stop. `life`: how many processes have been this worker."""
    graphs = run.graphs()
    placed = run.placed(graphs)
    rank = next(rank for rank in run.placement.ranks if rank.worker == name)
    endpoint = ZmqEndpoint(run.directory, name)
    clock = MonotonicClock()
    thread = ComputeThread(name)
    settings = {family: run.settings(family) for family in graphs}
    transport = transport_of(run.placement.transport, name, run.directory, rank.host, rank.device)
    worker = build_worker(name, rank, graphs, placed, settings, endpoint, clock, thread, transport)
    loading.settle()
    endpoint.watch(thread.descriptor)
    if transport.descriptor is not None:
        endpoint.watch(transport.descriptor)
    alive = Life(endpoint)
    for family in sorted(graphs):
        if name in placed[family].workers:
            endpoint.send(CONDUCTOR, WorkerReady(name, family, os.getpid(), life))
    told = clock.now()
    while alive.check() and not worker.stopped:
        for message in endpoint.receive():
            worker.handle(message)
        worker.collect()
        while worker.schedule():
            worker.collect()
        now = clock.now()
        if now - told >= PROGRESS_SECONDS:
            told = now
            worker.progress(life)
        wake = min(told + PROGRESS_SECONDS, worker.next_wake() or float("inf"))
        endpoint.wait(max(0.0, wake - now))
    thread.close()
    transport.close()
    endpoint.close()
