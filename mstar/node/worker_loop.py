"""A worker as a process: message loop on the main thread, steps on the compute thread."""

from __future__ import annotations

import os
import threading

from mstar.bus.zeromq import RETRY_SECONDS, ZmqEndpoint
from mstar.client.client import CONDUCTOR
from mstar.client.run import Run
from mstar.clock import Clock, MonotonicClock
from mstar.messages import WorkerReady
from mstar.node import loading
from mstar.node.life import Life
from mstar.transport.choose import transport_of
from mstar.worker.build import build_worker
from mstar.worker.executor import ComputeThread
from mstar.worker.worker import Worker

PROGRESS_SECONDS = 1.0


class Turns:
    """Turns a worker: what has arrived and what has ended is taken up, and the next step begins.

    The main thread takes a turn when something arrives, the compute thread when a step has ended: the next one then
    begins on the spot, without a hand-over. One takes a turn at a time.
    """

    def __init__(self, worker: Worker, endpoint: ZmqEndpoint, clock: Clock, life: int) -> None:
        self._worker = worker
        self._endpoint = endpoint
        self._clock = clock
        self._life = life
        self._lock = threading.Lock()
        self._over = False
        self._told = clock.now()
        self._until = 0.0  # how long the main thread sleeps

    def take(self) -> float:
        """A turn of the main thread → seconds until its next one, unless something arrives before."""
        with self._lock:
            self._until = self._turn()
            return max(0.0, self._until - self._clock.now())

    def go_on(self) -> bool:
        """A turn of the compute thread → whether the main thread may sleep as long as it meant to."""
        with self._lock:
            return not self._over and self._turn() >= self._until

    def end(self) -> None:
        """From now on the worker is not turned any more."""
        with self._lock:
            self._over = True

    def _turn(self) -> float:
        """Take a turn → clock time (s) of the next one, at the latest."""
        worker, endpoint = self._worker, self._endpoint
        if endpoint.stirred():
            for message in endpoint.receive():
                worker.handle(message)
        worker.collect()
        worker.schedule()
        if worker.stopped:
            return 0.0
        now = self._clock.now()
        if now - self._told >= PROGRESS_SECONDS:
            self._told = now
            worker.progress(self._life)
        due = self._told + PROGRESS_SECONDS
        wake = worker.next_wake()
        if wake is not None:
            due = min(due, wake)
        return min(due, now + RETRY_SECONDS) if endpoint.blocked else due


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
    turns = Turns(worker, endpoint, clock, life)
    thread.relieve_with(turns.go_on)
    endpoint.watch(thread.descriptor)
    if transport.descriptor is not None:
        endpoint.watch(transport.descriptor)
    alive = Life(endpoint)
    for family in sorted(graphs):
        if name in placed[family].workers:
            endpoint.send(CONDUCTOR, WorkerReady(name, family, os.getpid(), life))
    while alive.check() and not worker.stopped:
        if thread.descriptor in endpoint.wait(turns.take()):
            thread.hush()
    turns.end()
    thread.close()
    transport.close()
    endpoint.close()
