"""How long the parties of the bus wait for one another (torch-free)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds. Time in which the one who waits did not run itself does not count."""

    silent: float = 15.0
    """A worker that says nothing for so long is lost. It reports once a second while it computes, too."""
    step: float = 120.0
    """A worker whose step takes so long is lost."""
    loading: float = 600.0
    """A replacement that is not ready after this is lost."""
    waiting: float = 20.0
    """What is asked of a worker that is being replaced waits so long, and is then refused with `not_ready`."""
    calm: float = 60.0
    """A worker that was ready for so long has not begun in vain."""
    deaths: int = 5
    """So many processes of a worker may end in a row without a step done; then nothing helps."""


ENDLESS = Patience(silent=inf, step=inf, loading=inf)
"""For parties that are turned by hand: only a process that ends is lost."""
