"""The conductor as a process: its state machine on the bus. Event driven; no torch."""

from __future__ import annotations

from mstar.bus.zeromq import ZmqEndpoint
from mstar.client.client import CONDUCTOR
from mstar.client.run import Run
from mstar.clock import MonotonicClock
from mstar.conductor.conductor import Conductor
from mstar.messages import Stop
from mstar.node.life import Life


def run_conductor(run: Run) -> None:
    """Until told to stop."""
    graphs = run.graphs()
    conductor = Conductor(graphs, run.placed(graphs))
    endpoint = ZmqEndpoint(run.directory, CONDUCTOR)
    clock = MonotonicClock()
    life = Life(endpoint)
    while life.check():
        endpoint.wait(None)
        for message in endpoint.receive():
            if isinstance(message, Stop):
                life.over = True
                break
            for to, answer in conductor.handle(message, clock.now()):
                endpoint.send(to, answer)
    endpoint.close()
