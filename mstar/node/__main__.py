"""`python -m mstar.node RUN conductor` or `python -m mstar.node RUN worker NAME LIFE`; RUN: a file of
`mstar.client.run`, LIFE: how many processes have been this worker, from 1.

A process ends on Stop, on SIGTERM, or when its parent is gone (its standard input closes). One that can not begin
(wrong weights, a wrong graph) leaves a line for its parent and ends with status 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mstar.client.run import Run, read_run
from mstar.errors import GraphError, Rejected, WeightsError
from mstar.node.life import die_with_parent


def main(arguments: list[str]) -> int:
    """Exit status."""
    run = read_run(Path(arguments[0]))
    try:
        return _play(run, arguments[1:])
    except (GraphError, Rejected, WeightsError) as why:
        name = arguments[2] if len(arguments) > 2 else arguments[1]
        run.cause(name).write_text(" ".join(str(why).split()))
        return 1


def _play(run: Run, role: list[str]) -> int:
    match role:
        case ["conductor"]:
            from mstar.node.conductor_loop import run_conductor

            run_conductor(run)
        case ["worker", name, life]:
            die_with_parent()
            from mstar.node.worker_loop import run_worker

            run_worker(run, name, int(life))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
