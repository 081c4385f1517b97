"""A real server with the voice family, as its own processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import Serving, serving

SEED = 7
"""Equal turns are answered with equal sound."""


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the voice server records every conversation."""
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture(scope="session")
def voice_server(
    smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path, recordings: Path
) -> Iterator[Serving]:
    """One voice server for all tests; they stop its workers, and want them back."""
    given = ("--seed", str(SEED), "--max-sessions", "64", "--silent-seconds", "600", "--record", str(recordings))
    yield from serving("voice", *given)
