"""A recording run again: the same steps into a new session core, whose tasks the runtime computes anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from models.registry import Conversation as Offer
from mstar.client import Client
from mstar.client import Session as Runtime
from mstar.errors import Rejected
from server.events.client import AnyClientEvent, InputAudioBufferAppend
from server.events.decode import BadEvent, decode
from server.events.server import (
    OutputAudioTranscriptDone,
    OutputTextDone,
    ResponseDone,
    ServerEvent,
    TranscriptionCompleted,
)
from server.events.session import SessionPatch
from server.pump import AUDIO
from server.record.core import seeded
from server.record.entries import (
    Began,
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
from server.record.following import Diverged, Following, Outcome
from server.record.sums import sum_of_commands
from server.session.commands import Command, FeedMic, GrantCredit, InterruptTask, PlayAudio, Send, StartTask
from server.session.core import SessionCore
from server.session.microphone import STREAM
from server.session.options import Options
from server.session.tasks import Ended


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
        if not isinstance(began, Began):
            raise Rejected("not the recording of a conversation")
        self._began = began
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
        self._tasks = Following()
        self._runtime: Runtime | None = None

    async def run(self) -> Outcome:
        """Raises Rejected where the runtime does not open the session, or the recording can not be understood."""
        began = self._began
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
            behind = self._recording.steps[: self.outcome.steps]
            lost = any(isinstance(step, TaskEnded) and step.code == "worker_lost" for step in behind)
            note = "; a worker was lost before, whose successor may have heard otherwise" if lost else ""
            self.outcome.difference = f"step {self.outcome.steps + 1}: {where}{note}"
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
        task = self._tasks.task(step.key)
        value = await task.emitted(step)
        self.outcome.emissions += 1
        what = f"{task.task}: {step.output}[{step.index}]"
        self._give(self._core.emission(step.key, step.output, step.index, value, step.at), step.out, what)

    async def _ended(self, step: TaskEnded) -> None:
        task = await self._tasks.ended(step)
        end = Ended(step.status, step.code, step.cause)
        self._give(self._core.ended(step.key, end, step.at), step.out, f"the end of {task.task}")

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
                if (task := self._tasks.find(command.key)) is not None:
                    task.request.credit(AUDIO, command.upto, command.played)
            case StartTask():
                inputs: dict[str, Any] = dict(command.inputs)
                request = runtime.start(command.task, inputs, command.settings, command.positions)
                self._tasks.add(command.key, request)
            case InterruptTask():
                if (task := self._tasks.find(command.key)) is not None:
                    task.interrupt(command.heard)
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
            case ResponseDone(response=response):
                self.outcome.tokens[response.id] = 0 if response.usage is None else response.usage.output_tokens
                return
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
