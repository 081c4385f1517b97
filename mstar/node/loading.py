"""What a process does before and after it loads libraries and weights.

They are a million objects that live as long as the process. To look through them for cycles while they are loaded is a
fifth of the time that loading takes, and to look through them later stops a worker for a seventh of a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc


def hold() -> None:
    """Until `settle`, nothing is looked through."""
    gc.disable()


def settle() -> None:
    """What there is now is never looked through, what comes is; memory that loading has freed goes to the system."""
    gc.freeze()
    gc.enable()
    with contextlib.suppress(AttributeError):  # of glibc alone
        ctypes.CDLL(None).malloc_trim(0)
