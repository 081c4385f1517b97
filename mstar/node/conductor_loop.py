"""The conductor as a process: its state machine on the bus. Event driven; no torch."""

from __future__ import annotations

import shutil

from mstar.bus.zeromq import ZmqEndpoint
from mstar.client.client import CONDUCTOR
from mstar.client.run import Run
from mstar.clock import MonotonicClock
from mstar.conductor.conductor import Conductor, Out
from mstar.conductor.workers import TICK_SECONDS
from mstar.messages import ReplaceWorker, Stop
from mstar.node.life import Life


def run_conductor(run: Run) -> None:
    """Until told to stop. If the server is dead, its socket directory goes with the conductor."""
    graphs = run.graphs()
    conductor = Conductor(graphs, run.placed(graphs), run.patience)
    endpoint = ZmqEndpoint(run.directory, CONDUCTOR)
    clock = MonotonicClock()
    life = Life(endpoint)
    due = clock.now()
    while life.check():
        endpoint.wait(max(0.0, due - clock.now()))
        for message in endpoint.receive():
            if isinstance(message, Stop):
                life.over = True
                break
            _send(endpoint, conductor.handle(message, clock.now()))
        if clock.now() >= due:
            due = clock.now() + TICK_SECONDS
            _send(endpoint, conductor.tick(clock.now()))
    endpoint.close()
    if life.orphaned:
        shutil.rmtree(run.directory, ignore_errors=True)


def _send(endpoint: ZmqEndpoint, out: Out) -> None:
    for to, message in out:
        if isinstance(message, ReplaceWorker):
            endpoint.forget(message.worker)
        endpoint.send(to, message)
