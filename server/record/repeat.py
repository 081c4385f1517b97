"""A recording of calls asked again, in the order in which they and their answers came."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mstar.client import Client
from mstar.client.calls import Feed, Interrupt, repeat, unpacked
from mstar.errors import Rejected
from mstar.tensors import Value
from server.record.calls import number
from server.record.entries import Called, Emitted, Entry, Opened, Recording, TaskEnded
from server.record.following import Diverged, Following, Outcome


class Repeat:
    """One run against a runtime that serves the family; see `server.record.replay.Replay`."""

    def __init__(
        self,
        recording: Recording,
        client: Client,
        advance: Callable[[float], None] = lambda _: None,
        tell: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        if not isinstance(recording.began, Opened):
            raise Rejected("not a recording of calls")
        self.outcome = Outcome()
        self._opened = recording.began
        self._recording = recording
        self._client = client
        self._advance = advance
        self._tell = tell
        self._tasks = Following()
        self._written: dict[str, str] = {}  # request → text that was fed to it

    async def run(self) -> Outcome:
        """Raises Rejected where the runtime does not open the session, or the recording can not be understood."""
        opened = self._opened
        self._runtime = await self._client.open(
            opened.family, settings=dict(opened.session_settings), session=opened.session
        )
        try:
            for step in self._recording.steps:
                self._advance(getattr(step, "at", opened.at))
                await self._step(step)
                self.outcome.steps += 1
        except Diverged as where:
            self.outcome.difference = f"step {self.outcome.steps + 1}: {where}"
        except ValueError as wrong:
            raise Rejected(f"step {self.outcome.steps + 1} can not be understood: {wrong}") from None
        finally:
            await self._runtime.close()
        return self.outcome

    async def _step(self, step: Entry) -> None:
        match step:
            case Called(call=raw):
                self._call(raw)
            case Emitted(key=key, output=output):
                value = await self._tasks.task(key).emitted(step)
                self.outcome.emissions += 1
                self._emitted(f"{self._opened.session}.{key}", output, value)
            case TaskEnded(key=key):
                await self._tasks.ended(step)
                self._said(f"{self._opened.session}.{key}")
            case _:
                raise Diverged(f"a {type(step).__name__} in the middle")

    def _call(self, raw: bytes) -> None:
        call = unpacked(raw)
        match call:
            case Interrupt(request=request):
                task = self._tasks.find(number(request))
                if task is not None:
                    task.interrupt(call.heard)
                return
            case Feed(request=request, value=str(text)):
                self._written[request] = self._written.get(request, "") + text
            case _:
                pass
        begun = repeat(self._runtime, call)
        if begun is not None:
            self._tasks.add(number(begun.id), begun)

    def _emitted(self, request: str, output: str, value: Value) -> None:
        if output == "audio" and isinstance(value, Mapping) and isinstance(value.get("pcm"), np.ndarray):
            pcm = np.asarray(value["pcm"], np.float32).reshape(-1)
            self.outcome.sound.setdefault(request, []).append(pcm)

    def _said(self, request: str) -> None:
        words = self._written.pop(request, "")
        if words:
            self.outcome.lines.append(("written", words))
            self._tell("written", words)
