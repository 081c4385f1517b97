"""`python -m models.pull voice`: the pull as a command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from models.pull import Printer, pull
from models.pull.manifest import CATALOGUE, Catalogue
from mstar.errors import Rejected, WeightsError


def main(arguments: Sequence[str] | None = None, catalogue: Catalogue = CATALOGUE) -> int:
    """Pull what the arguments name. Returns 0, 1 when a pull failed (one line on stderr), 2 for an unknown name."""
    parser = argparse.ArgumentParser(prog="python -m models.pull", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"one of: {', '.join(catalogue.names)}")
    parser.add_argument("--verify", action="store_true", help="hash what is present, pull again what is wrong")
    options = parser.parse_args(arguments)
    printer = Printer(sys.stderr)
    try:
        for name in options.names:
            for folder in pull(name, printer, verify=options.verify, catalogue=catalogue):
                print(folder)
    except (Rejected, WeightsError) as error:
        printer.close()
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, Rejected) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
