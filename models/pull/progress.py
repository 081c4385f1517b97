"""Steps of a pull, and how a terminal shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TextIO

_MIB = 1024 * 1024


class Phase(Enum):
    """Where the pull of one part stands."""

    WAITING = "waiting for another pull"
    DOWNLOADING = "downloading"
    VERIFYING = "verifying"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Step:
    """`done` of `total` bytes of a part's phase; `total` is 0 where it is not known yet."""

    part: str
    phase: Phase
    done: int = 0
    total: int = 0

    @property
    def percent(self) -> int:
        """Whole percent, 0 where the total is unknown."""
        return 100 * self.done // self.total if self.total else 0


Report = Callable[[Step], None]
"""Called with every step, in order, on the thread that pulls."""


def silent(_step: Step) -> None:
    """Report nothing."""


class Printer:
    """Prints steps: one rewritten line on a terminal, else a line a phase and every 10 % of a download."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._tty = stream.isatty()
        self._shown: tuple[str, Phase, int] | None = None
        self._width = 0

    def __call__(self, step: Step) -> None:
        """Show one step."""
        mark = step.percent if self._tty else step.percent // 10
        counted = self._tty or step.phase is Phase.DOWNLOADING
        if not counted:
            mark = 0
        key = (step.part, step.phase, mark)
        if key == self._shown:
            return
        self._shown = key
        text = f"{step.part}: {step.phase.value}"
        if step.total and counted:
            text += f" {step.percent:3d} % of {step.total / _MIB:.1f} MiB"
        if not self._tty:
            print(text, file=self._stream, flush=True)
            return
        ended = step.phase is Phase.READY
        print("\r" + text.ljust(self._width), end="\n" if ended else "", file=self._stream, flush=True)
        self._width = 0 if ended else len(text)

    def close(self) -> None:
        """End an unfinished terminal line, so that what follows starts on its own."""
        if self._width:
            print(file=self._stream, flush=True)
            self._width = 0
