"""A real server with the voice family, as its own processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import Serving, serving

SEED = 7
"""Equal turns are answered with equal sound."""


@pytest.fixture(scope="session")
def voice_server(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> Iterator[Serving]:
    """One voice server for all tests; they stop its workers, and want them back."""
    yield from serving("voice", "--seed", str(SEED), "--max-sessions", "64", "--silent-seconds", "600")
