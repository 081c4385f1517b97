"""When a process looks for garbage in cycles.

Libraries and weights are a million objects that live as long as the process. To look through them while they are loaded
is a fifth of the time that loading takes, and to look through them later stops a worker for a seventh of a second.
"""

from __future__ import annotations

import gc


def hold() -> None:
    """Until `settle`, nothing is looked through."""
    gc.disable()


def settle() -> None:
    """What there is now is never looked through; what comes is."""
    gc.freeze()
    gc.enable()
