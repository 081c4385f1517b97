"""A process that has imported what every worker needs, and waits to be told which one it is.

Loading the libraries is half of the time that a worker takes to be there again.
"""

from __future__ import annotations

import importlib
import os
import sys

from mstar.client.run import Run


def wait_for_role(run: Run) -> tuple[str, int] | None:
    """Import the code of all components, without weights; then wait → name and life, None if nobody needs it."""
    importlib.import_module("mstar.node.worker_loop")
    for graph in run.graphs().values():
        for component in graph.components:
            importlib.import_module(component.submodule.partition(":")[0])
    told = os.read(sys.stdin.fileno(), 1024).decode().split()
    return (told[0], int(told[1])) if told else None
