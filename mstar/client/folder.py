"""Folders for the sockets of a run: their user's alone, locked while the run lasts (torch-free).

A run that ends removes its folder. Where server and conductor were killed together nobody could: the next run does.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "mstar-"
_LOCK = "lock"


def made() -> Path:
    """A new folder; those of dead runs beside it are removed."""
    where = Path(tempfile.mkdtemp(prefix=_PREFIX))
    _sweep(where.parent)
    return where


def lock(where: Path) -> int:
    """Hold a folder → the descriptor that does, until it is closed or its process ends."""
    early = where / f"{_LOCK}.new"
    descriptor = os.open(early, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    early.rename(where / _LOCK)  # only now, so that nobody finds it unlocked
    return descriptor


def _sweep(parent: Path) -> None:
    """Remove the folders whose lock nobody holds."""
    for where in parent.glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(where / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # no run's, another user's, or not locked yet
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(where, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
