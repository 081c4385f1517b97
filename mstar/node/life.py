"""When a process of the runtime has to end: it was told to, or its parent is gone (torch-free)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from mstar.bus.zeromq import ZmqEndpoint

_SET_DEATH_SIGNAL = 1
"""`PR_SET_PDEATHSIG`, prctl(2)."""


class Life:
    """Watches SIGTERM, and standard input: a line there is the order to end, an end without one a parent that is dead.

    SIGINT is the parent's business.
    """

    def __init__(self, endpoint: ZmqEndpoint) -> None:
        self.over = False
        self.orphaned = False
        """Whether the parent is dead. It is known by what it did not say: its descriptors close before it has ended."""
        self._input = sys.stdin.fileno()
        os.set_blocking(self._input, False)
        endpoint.watch(self._input)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._told)

    def _told(self, *_: object) -> None:
        self.over = True

    def check(self) -> bool:
        """Whether the process is to go on."""
        try:
            self.orphaned = os.read(self._input, 1) == b""
            self.over = True
        except BlockingIOError:
            pass
        return not self.over


def die_with_parent() -> None:
    """The kernel kills this process with the thread that started it: also when it is stopped, or loading."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
