"""What the numbers were measured on."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAGS = ("avx512_vnni", "avx512f", "avx2")


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores, widest vector unit, date (UTC), commit ("+" behind it: with changes that are not committed)."""

    cores: int
    vectors: str
    date: str
    commit: str

    def __str__(self) -> str:
        return f"{self.cores} cores, {self.vectors.upper()}, {self.date}, commit {self.commit}"


def this_machine() -> Machine:
    """Raises nothing: what can not be found out is told as "unknown"."""
    return Machine(os.cpu_count() or 1, _vectors(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), _commit())


def load() -> float:
    """Processes that ran or waited to run, mean of the last minute."""
    return os.getloadavg()[0]


class Watch:
    """From its making on: how busy the cores are with what is neither this process nor one that it waited for."""

    def __init__(self) -> None:
        self.load = load()
        self._began = time.monotonic()
        self._start = _busy_seconds() - _own_seconds()

    def others(self) -> float:
        """Mean number of cores."""
        return max(0.0, (_busy_seconds() - _own_seconds() - self._start) / (time.monotonic() - self._began))


def _busy_seconds() -> float:
    """Time that all cores together have worked since the machine began: user, nice, system, interrupts, stolen."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(ticks[:3]) + sum(ticks[5:8])) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _vectors() -> str:
    try:
        known = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return "unknown"
    return next((flag for flag in FLAGS if flag in known), "no avx2")


def _commit() -> str:
    try:
        found = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found + ("+" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
