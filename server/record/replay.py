"""A recording run again: the same steps into a new session core, whose tasks the runtime computes anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from models.registry import Conversation as Offer
from mstar.client import Client, Emission, Request, RequestEnded
from mstar.client import Session as Runtime
from mstar.errors import Rejected
from mstar.tensors import Value
from server.events.client import AnyClientEvent, InputAudioBufferAppend
from server.events.decode import BadEvent, decode
from server.events.server import (
    OutputAudioTranscriptDone,
    OutputTextDone,
    ServerEvent,
    TranscriptionCompleted,
)
from server.events.session import SessionPatch
from server.pump import AUDIO
from server.record.core import seeded
from server.record.entries import (
    Congested,
    Emitted,
    Entry,
    Heard,
    Mistook,
    Played,
    Recording,
    Said,
    TaskEnded,
    Ticked,
)
from server.record.sums import shown, sum_of, sum_of_commands
from server.session.commands import Command, FeedMic, GrantCredit, InterruptTask, PlayAudio, Send, StartTask
from server.session.core import SessionCore
from server.session.microphone import STREAM
from server.session.options import Options
from server.session.tasks import Ended

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
    difference: str = ""
    """Where the runs parted; "" = they are equal."""

    def samples(self, response: str) -> int:
        return sum(len(piece) for piece in self.sound.get(response, ()))


class _Followed:
    """What a task's request has emitted so far."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.task = request.task
        self.interrupted = False
        self._coming = aiter(request)
        self._values: dict[tuple[str, int], Value] = {}
        self._end: RequestEnded | None = None

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

    @property
    def left(self) -> list[str]:
        """Values that nobody has taken."""
        return [f"{output}[{index}]" for output, index in self._values]

    async def _next(self, what: str) -> None:
        try:
            event = await asyncio.wait_for(anext(self._coming), PATIENCE)
        except TimeoutError:
            raise Diverged(f"{self.task}: {what} did not come within {PATIENCE:.0f} s") from None
        match event:
            case Emission():
                self._values[event.output, event.index] = event.value
            case RequestEnded():
                self._end = event


class Replay:
    """One run of a recording against a runtime that serves its family; `advance` turns a clock that is turned by hand.

    Raises Rejected for a recording that says nothing sensible about how its session began.
    """

    def __init__(
        self,
        recording: Recording,
        offer: Offer,
        client: Client,
        advance: Callable[[float], None] = lambda _: None,
        tell: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        began = recording.began
        self.outcome = Outcome()
        self._recording = recording
        self._client = client
        self._advance = advance
        self._tell = tell
        try:
            options = msgspec.convert(began.options, Options)
            self._core = SessionCore(offer, began.model, options, seeded(began.ids), began.at, began.unix)
        except (msgspec.MsgspecError, ValueError, OverflowError) as wrong:
            raise Rejected(f"the session's beginning can not be understood: {wrong}") from None
        self._tasks: dict[int, _Followed] = {}
        self._runtime: Runtime | None = None

    async def run(self) -> Outcome:
        """Raises Rejected where the runtime does not open the session, or the recording can not be understood."""
        began = self._recording.began
        self._runtime = await self._client.open(
            began.family, settings=dict(began.session_settings), session=began.session
        )
        try:
            patch = None if began.patch is None else msgspec.json.decode(began.patch, type=SessionPatch)
            self._give(self._core.open(patch), began.out, "the session's beginning")
            for step in self._recording.steps:
                self._advance(getattr(step, "at", began.at))
                await self._step(step)
                self.outcome.steps += 1
        except Diverged as where:
            self.outcome.difference = f"step {self.outcome.steps + 1}: {where}"
        except (msgspec.MsgspecError, ValueError, OverflowError) as wrong:
            raise Rejected(f"step {self.outcome.steps + 1} can not be understood: {wrong}") from None
        finally:
            await self._runtime.close()
        return self.outcome

    # ------------------------------------------------------------------------------------------- in

    async def _step(self, step: Entry) -> None:
        match step:
            case Said():
                self._give(self._core.client(_event(step), step.at), step.out, step.event[:80].decode(errors="replace"))
            case Mistook():
                why = Rejected(step.message, code=step.code, param=step.param)
                self._give(self._core.refuse(why, step.event_id), step.out, "a mistake")
            case Heard():
                pcm = np.frombuffer(step.pcm, dtype=np.float32)
                self._give(self._core.hear(pcm, step.at), step.out, f"sound from sample {step.position} on")
            case Played():
                self._give(self._core.played(step.response, step.samples, step.at), step.out, "playout")
            case Congested():
                self._give(self._core.congested(step.congested, step.at), step.out, "congestion")
            case Ticked():
                self._give(self._core.tick(step.at), step.out, "time")
            case Emitted():
                await self._emitted(step)
            case TaskEnded():
                await self._ended(step)
            case _:
                raise Diverged(f"a {type(step).__name__} in the middle")

    async def _emitted(self, step: Emitted) -> None:
        task = self._task(step.key)
        value = await task.value(step.output, step.index)
        what = f"{task.task}: {step.output}[{step.index}]"
        if sum_of(step.output, value) != step.sum:
            raise Diverged(f"{what} was {step.shown}, is {shown(step.output, value)}")
        self.outcome.emissions += 1
        self._give(self._core.emission(step.key, step.output, step.index, value, step.at), step.out, what)

    async def _ended(self, step: TaskEnded) -> None:
        task = self._task(step.key)
        end = Ended(step.status, step.code, step.cause)
        if step.status == "failed" and step.code in LOST:
            task.request.interrupt()
        elif task.interrupted:
            await task.end()  # whether it was quicker than the interruption is a matter of timing
        else:
            got = await task.end()
            if (got.status, got.code) != (step.status, step.code):
                now = f"{got.status} {got.code}".strip()
                raise Diverged(f"{task.task} was {step.status} {step.code}".rstrip() + f", is {now}")
            if step.status == "done" and task.left:
                raise Diverged(f"{task.task} gave {', '.join(task.left[:3])} as well")
        del self._tasks[step.key]
        self._give(self._core.ended(step.key, end, step.at), step.out, f"the end of {task.task}")

    def _task(self, key: int) -> _Followed:
        if key not in self._tasks:
            raise Diverged(f"task {key} was not started")
        return self._tasks[key]

    # ------------------------------------------------------------------------------------------- out

    def _give(self, commands: list[Command], out: int, what: str) -> None:
        """Carry out what a step gave, after comparing it with what it gave before."""
        if sum_of_commands(commands) != out:
            said = ", ".join(dict.fromkeys(type(command).__name__ for command in commands)) or "nothing"
            raise Diverged(f"behind {what} the server does something else (now: {said})")
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        runtime = self._runtime
        assert runtime is not None
        match command:
            case Send(event=event):
                self._said(event)
            case PlayAudio():
                self.outcome.sound.setdefault(command.response_id, []).append(command.pcm)
            case FeedMic():
                runtime.feed(STREAM, command.index, command.rows, rows=True)
            case GrantCredit():
                if command.key in self._tasks:
                    self._tasks[command.key].request.credit(AUDIO, command.upto, command.played)
            case StartTask():
                inputs: dict[str, Any] = dict(command.inputs)
                request = runtime.start(command.task, inputs, command.settings, command.positions)
                self._tasks[command.key] = _Followed(request)
            case InterruptTask():
                if command.key in self._tasks:
                    self._tasks[command.key].interrupted = True
                    self._tasks[command.key].request.interrupt(command.heard)
            case _:
                pass

    def _said(self, event: ServerEvent) -> None:
        match event:
            case TranscriptionCompleted(transcript=words):
                line = ("user", words)
            case OutputAudioTranscriptDone(transcript=words):
                line = ("assistant", words)
            case OutputTextDone(text=words):
                line = ("assistant", words)
            case _:
                return
        self.outcome.lines.append(line)
        self._tell(*line)


def _event(step: Said) -> AnyClientEvent:
    try:
        event = decode(step.event)
    except BadEvent as bad:
        raise ValueError(bad.message) from None
    if isinstance(event, InputAudioBufferAppend):
        raise ValueError("sound among the events")
    return event
