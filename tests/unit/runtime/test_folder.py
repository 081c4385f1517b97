"""The folder of a run's sockets is gone after any kind of death, and nobody else's is touched."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from mstar.client.folder import lock, made


def test_folders_of_dead_runs_are_removed_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    alive, dead, young, foreign = made(), made(), made(), tmp_path / "mstar-notes"
    held = [lock(alive), lock(dead)]
    (dead / "worker.main").touch()
    foreign.mkdir()
    os.close(held[1])  # as the kernel does when the process ends
    new = made()
    assert not dead.exists()
    assert {alive, young, foreign, new} == set(tmp_path.iterdir())
    assert alive.stat().st_mode & 0o777 == 0o700
    os.close(held[0])
