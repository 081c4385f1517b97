"""`python -m mstar.node RUN conductor` or `python -m mstar.node RUN worker NAME`; RUN: a file of `mstar.client.run`.

A process ends on Stop, on SIGTERM, or when its parent is gone (its standard input closes).
"""

from __future__ import annotations

import sys
from pathlib import Path

from mstar.client.run import read_run


def main(arguments: list[str]) -> int:
    """Exit status."""
    run = read_run(Path(arguments[0]))
    match arguments[1:]:
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
