"""Worlds that a machine may not be able to simulate."""

from __future__ import annotations

from collections.abc import Callable

from models.worlds.arena import Arena
from tests.absent import absent


def made(arena: Callable[[], Arena]) -> Arena:
    """The world; without its packages, or a way to paint it, the test is skipped."""
    try:
        return arena()
    except (ImportError, AttributeError, OSError, RuntimeError) as why:  # what missing parts of EGL end with
        absent(f"the arm can not be simulated: {why!r}")
