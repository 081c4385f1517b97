"""The voice family with real weights in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.voice.model import FAMILY
from mstar.client import Session
from mstar.local import LocalSystem


def voice_system(llm: Path, asr: Path, voice: Path, ear: Path) -> LocalSystem:
    """All of it on one rank, from these folders."""
    folders = {"llm": str(llm), "asr": str(asr), "voice": str(voice), "ear": str(ear)}
    return LocalSystem({"voice": FAMILY.graph({})}, settings={"voice": folders})


@contextmanager
def voice_session(system: LocalSystem, *, trace: bool = False) -> Iterator[Session]:
    """A session of its own; afterwards nothing of it is left."""
    baseline = system.census()
    opened = system.open("voice", trace=trace)
    yield opened
    system.close(opened)
    assert system.census() == baseline
