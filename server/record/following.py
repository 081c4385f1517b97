"""What a run of a recording has in common, whatever was recorded: its outcome, and the requests it follows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mstar.client import Emission, Request, RequestEnded
from mstar.tensors import Value
from server.record.entries import Emitted, TaskEnded
from server.record.sums import shown, sum_of

PATIENCE = 120.0
"""Seconds after which an emission that does not come is taken for one that never will."""
LOST = frozenset({"worker_lost", "runtime_lost", "not_ready", "session_closed"})
"""Ends that came from outside: they are handed in as they were."""


class Diverged(Exception):
    """The runs are not equal; the text says where."""


@dataclass(slots=True)
class Outcome:
    """What was said, as far as the runs were equal."""

    steps: int = 0
    emissions: int = 0
    lines: list[tuple[str, str]] = field(default_factory=list)
    """(who, words), in order."""
    sound: dict[str, list[npt.NDArray[np.float32]]] = field(default_factory=dict)
    """Response → its sound as it was sent."""
    tokens: dict[str, int] = field(default_factory=dict)
    """Response → tokens that were generated for it."""
    difference: str = ""
    """Where the runs parted; "" = they are equal."""

    def samples(self, response: str) -> int:
        return sum(len(piece) for piece in self.sound.get(response, ()))


class Followed:
    """What a task's request has emitted so far."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.task = request.task
        self.interrupted = False
        self._coming = aiter(request)
        self._values: dict[tuple[str, int], Value] = {}
        self._end: RequestEnded | None = None

    def interrupt(self, heard: int | None = None) -> None:
        """Nothing more is wanted of it."""
        self.interrupted = True
        self.request.interrupt(heard)

    async def value(self, output: str, index: int) -> Value:
        """The `index`-th value of an output. Raises Diverged if it never comes."""
        while (output, index) not in self._values:
            if self._end is not None:
                cause = f" ({self._end.cause})" if self._end.cause else ""
                raise Diverged(f"{self.task}: {output}[{index}] never came, the task was {self._end.status}{cause}")
            await self._next(f"{output}[{index}]")
        return self._values.pop((output, index))

    async def end(self) -> RequestEnded:
        """How the task ended; values that are left over were not there in the recording."""
        while self._end is None:
            await self._next("its end")
        return self._end

    async def _next(self, what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                event = await anext(self._coming)
        except TimeoutError:
            raise Diverged(f"{self.task}: {what} did not come within {PATIENCE:.0f} s") from None
        match event:
            case Emission():
                self._values[event.output, event.index] = event.value
            case RequestEnded():
                self._end = event

    async def emitted(self, step: Emitted) -> Value:
        """The value of a recorded emission, computed anew. Raises Diverged if it is another one.

        None of a task that was interrupted: the emission was on its way to nobody, and another time might not be.
        """
        if self.interrupted:
            return self._values.pop((step.output, step.index), None)
        value = await self.value(step.output, step.index)
        if sum_of(value) != step.sum:
            now = shown(value)
            raise Diverged(f"{self.task}: {step.output}[{step.index}] was {step.shown}, is {now}")
        return value

    async def ended(self, step: TaskEnded) -> None:
        """Wait for a recorded end. Raises Diverged if it is another one."""
        if step.status == "failed" and step.code in LOST:
            self.request.interrupt()
            return
        got = await self.end()
        if self.interrupted:
            return  # whether it was quicker than the interruption is a matter of timing
        if (got.status, got.code) != (step.status, step.code):
            now = f"{got.status} {got.code}".strip()
            raise Diverged(f"{self.task} was {step.status} {step.code}".rstrip() + f", is {now}")
        if step.status == "done" and self._values:
            left = [f"{output}[{index}]" for output, index in self._values]
            raise Diverged(f"{self.task} gave {', '.join(left[:3])} as well")


class Following:
    """The requests of one run by the key of their task."""

    def __init__(self) -> None:
        self._tasks: dict[int, Followed] = {}

    def add(self, key: int, request: Request) -> None:
        self._tasks[key] = Followed(request)

    def find(self, key: int) -> Followed | None:
        return self._tasks.get(key)

    def task(self, key: int) -> Followed:
        """Raises Diverged if there is none."""
        if key not in self._tasks:
            raise Diverged(f"task {key} was not started")
        return self._tasks[key]

    async def ended(self, step: TaskEnded) -> Followed:
        """The task of a recorded end, which has ended alike. Raises Diverged."""
        task = self.task(step.key)
        await task.ended(step)
        del self._tasks[step.key]
        return task
