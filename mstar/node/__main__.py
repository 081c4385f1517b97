"""`python -m mstar.node RUN conductor` or `python -m mstar.node RUN worker NAME`; RUN: a file of `mstar.client.run`.

A process ends on Stop, on SIGTERM, or when its parent is gone (its standard input closes). One that can not begin
(wrong weights, a wrong graph) leaves a line for its parent and ends with status 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mstar.client.run import Run, read_run
from mstar.errors import GraphError, Rejected, WeightsError


def main(arguments: list[str]) -> int:
    """Exit status."""
    run = read_run(Path(arguments[0]))
    try:
        return _play(run, arguments[1:])
    except (GraphError, Rejected, WeightsError) as why:
        run.cause(arguments[-1]).write_text(" ".join(str(why).split()))
        return 1


def _play(run: Run, role: list[str]) -> int:
    match role:
        case ["conductor"]:
            from mstar.node.conductor_loop import run_conductor

            run_conductor(run)
        case ["worker", name]:
            from mstar.node.worker_loop import run_worker

            run_worker(run, name)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
