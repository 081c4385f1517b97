"""`python -m mstar.node RUN conductor | worker NAME LIFE | spare`; RUN: a file of `mstar.client.run`, LIFE: how many
processes have been this worker, from 1. A spare process becomes a worker when its standard input says which.

A process ends on Stop, on SIGTERM, on a line of its standard input, or when its parent is gone (that input closes).
One that can not begin (wrong weights, a wrong graph) leaves a line for its parent and ends with status 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from mstar.client.run import Run, read_run
from mstar.errors import GraphError, Rejected, WeightsError
from mstar.node import loading
from mstar.node.life import die_with_parent


def main(arguments: list[str]) -> int:
    """Exit status."""
    run = read_run(Path(arguments[0]))
    match arguments[1:]:
        case ["conductor"]:
            from mstar.node.conductor_loop import run_conductor

            return _begun(run, "conductor", lambda: run_conductor(run))
        case ["worker", name, life]:
            die_with_parent()
            loading.hold()
            return _worker(run, name, int(life))
        case ["spare"]:
            die_with_parent()
            loading.hold()
            from mstar.node.spare import wait_for_role

            role = wait_for_role(run)
            return 0 if role is None else _worker(run, *role)
        case _:
            print(__doc__, file=sys.stderr)
            return 2


def _worker(run: Run, name: str, life: int) -> int:
    from mstar.node.worker_loop import run_worker

    return _begun(run, name, lambda: run_worker(run, name, life))


def _begun(run: Run, name: str, play: Callable[[], None]) -> int:
    try:
        play()
    except (GraphError, Rejected, WeightsError) as why:
        run.cause(name).write_text(" ".join(str(why).split()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
