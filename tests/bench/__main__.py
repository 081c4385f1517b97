"""`python -m tests.bench`: runs the rows, each in a process of its own, prints and keeps what they measured.

Exit status: 0, 1 when a floor is missed or a row fails, 2 when asked wrongly.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tests.bench.machine import ROOT, Machine, Watch, load, this_machine
from tests.bench.report import Row, markdown, table

ROWS = (
    "voice", "bargein", "sessions", "idle", "lm", "asr", "tts", "tts_load", "orpheus", "pi05", "rollout", "plan",
    "feed", "video", "firing", "hop", "throughput", "memory",
)  # fmt: skip
"""A module of this folder each, with `run(quick) → Row`."""
BUSY = 0.1
"""Cores used by other programs from which on a measurement is marked."""
NUMBERS = "## Numbers\n"
RESULTS = ROOT / "bench-results"


class Report(msgspec.Struct, frozen=True):
    """What one run of the benchmark leaves behind."""

    machine: Machine
    quick: bool
    rows: tuple[Row, ...]
    failed: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for → exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=ROWS, metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--quick", action="store_true", help="few samples: to see that everything runs")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--docs", action="store_true", help="write the numbers into docs/bench.md")
    options = parser.parse_args(arguments)
    if options.into is not None:
        options.into.write_bytes(msgspec.json.encode(measured(options.only[0], quick=options.quick)))
        return 0
    rows: list[Row] = []
    failed: list[str] = []
    machine = this_machine()
    print(machine)
    for name in options.only:
        print(f"{name} …", flush=True)
        row = _apart(name, quick=options.quick)
        if row is None:
            failed.append(name)
            continue
        rows.append(row)
        print(table([row]))
        for note in row.notes:
            print(f"  {note}")
        busy = " (BUSY: times and ratios do not count)" if row.others > BUSY else ""
        print(
            f"  {row.seconds:.0f} s, load {row.load[0]:.1f} → {row.load[1]:.1f}, others' cores {row.others:.2f}{busy}"
        )
        sys.stdout.flush()
    print(f"\n{table(rows)}")
    print(f"kept in {_keep(Report(machine, options.quick, tuple(rows), tuple(failed)))}")
    if options.docs:
        _write_docs(machine, rows)
    missed = [f"{row.name}.{metric.name}" for row in rows for metric in row.metrics if not metric.holds]
    if missed or failed:
        print(f"floors missed: {', '.join(missed) or 'none'}; rows failed: {', '.join(failed) or 'none'}")
    return 1 if missed or failed else 0


def measured(name: str, *, quick: bool) -> Row:
    """Run one row here."""
    watch, started = Watch(), time.monotonic()
    row: Row = importlib.import_module(f"tests.bench.row_{name}").run(quick=quick)
    seconds = time.monotonic() - started
    return replace(row, load=(watch.load, load()), others=watch.others(), seconds=seconds)


def _apart(name: str, *, quick: bool) -> Row | None:
    """Run one row in a process of its own; None if it fails, after it has said why."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "row.json"
        command = [sys.executable, "-m", "tests.bench", "--only", name, "--into", str(into)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
        ended = subprocess.run([*command, *(["--quick"] if quick else [])], cwd=ROOT, env=environment, check=False)
        if ended.returncode or not into.is_file():
            print(f"  {name} failed with status {ended.returncode}")
            return None
        return msgspec.json.decode(into.read_bytes(), type=Row)


def _keep(report: Report) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{report.machine.date.replace(' ', '-').replace(':', '')}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    return path


def _write_docs(machine: Machine, rows: Sequence[Row]) -> None:
    """Replace the numbers of the documentation, which are its last section."""
    path = ROOT / "docs" / "bench.md"
    head, mark, _ = path.read_text().partition(NUMBERS)
    path.write_text(f"{head}{mark}\n{machine}.\n\n{markdown(rows)}\n")


if __name__ == "__main__":
    sys.exit(main())
