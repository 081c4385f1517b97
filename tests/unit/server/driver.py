"""Drives a session core as a shell would, with a clock turned by hand and a family that says what the test tells it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from models.registry import Conversation
from mstar.tensors import Value
from server.events.client import InputAudioBufferAppend
from server.events.decode import BadEvent, decode
from server.events.server import ServerEvent, encode
from server.session.commands import (
    BargedIn,
    ClearAudio,
    Command,
    EndSession,
    FeedMic,
    GrantCredit,
    InterruptTask,
    PlayAudio,
    Send,
    StartTask,
    Underran,
)
from server.session.core import SessionCore
from server.session.options import Options
from server.session.tasks import Ended

OFFER = Conversation()
ITEM = OFFER.mic_item
ITEM_SECONDS = ITEM / OFFER.mic_rate


class Driver:
    """`wire`: what a WebSocket client would be sent, in order, as dicts; `commands`: all that the core asked for."""

    def __init__(self, options: Options | None = None, model: str = "demo", offer: Conversation = OFFER) -> None:
        self.now = 100.0
        counts: dict[str, itertools.count[int]] = {}

        def ids(kind: str) -> str:
            return f"{kind}_{next(counts.setdefault(kind, itertools.count(1)))}"

        self.core = SessionCore(offer, model, options or Options(), ids, self.now, 1_900_000_000)
        self.wire: list[dict[str, Any]] = []
        self.commands: list[Command] = []
        self.tasks: dict[int, StartTask] = {}
        self.fed = 0
        self.closed: EndSession | None = None
        self._items: list[npt.NDArray[np.float32]] = []
        self._indices: dict[tuple[int, str], int] = {}
        self.run(self.core.open())

    # ------------------------------------------------------------------------------------------- in

    def client(self, event: dict[str, Any] | str | bytes) -> None:
        frame = event if isinstance(event, (str, bytes)) else msgspec.json.encode(event)
        try:
            decoded = decode(frame)
        except BadEvent as bad:
            self.run(self.core.refuse(bad.rejected, bad.event_id))
            return
        assert not isinstance(decoded, InputAudioBufferAppend)
        self.run(self.core.client(decoded, self.now))

    def hear(self, speech: Iterable[float]) -> None:
        """One microphone item per probability of speech, in real time; the listening task answers each."""
        for probability in speech:
            self.now += ITEM_SECONDS
            self.append([probability])
            self.listen()

    def append(self, speech: Iterable[float]) -> None:
        """Microphone items at once, each filled with its probability of speech; nobody listens to them yet."""
        sound = np.concatenate([np.full(ITEM, probability, dtype=np.float32) for probability in speech])
        self.run(self.core.hear(sound, self.now))

    def listen(self, items: int = 1 << 30) -> None:
        """The listening task answers the next items that were fed to it."""
        for _ in range(items):
            task = self.running("listen")
            if task is None:
                return
            index = task.positions["mic"] + self._indices.get((task.key, "speech"), 0)
            if index >= len(self._items):
                return
            self.emit(task.key, "speech", float(self._items[index].max()))

    def say(self, seconds: float = 1.0, silence: float = 0.6) -> None:
        self.hear([0.9] * round(seconds / ITEM_SECONDS) + [0.01] * round(silence / ITEM_SECONDS))

    def emit(self, key: int, output: str, value: Value) -> None:
        index = self._indices.get((key, output), 0)
        self._indices[key, output] = index + 1
        self.run(self.core.emission(key, output, index, value, self.now))

    def text(self, key: int, *deltas: str) -> None:
        for delta in deltas:
            self.emit(key, "text", {"text": delta, "at": 0})

    def sound(self, key: int, seconds: float, level: float = 0.1) -> None:
        pcm = np.full(round(seconds * OFFER.speech_rate), level, dtype=np.float32)
        self.emit(key, "audio", {"pcm": pcm, "start": 0})

    def done(self, key: int, status: str = "done", **why: str) -> None:
        self.tasks.pop(key)
        self.run(self.core.ended(key, Ended(status, **why), self.now))

    def wait(self, seconds: float, step: float = 0.02) -> None:
        """Time passes, and the core is called when it asked to be."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(max(self.core.next(self.now), self.now + step), end)
            self.run(self.core.tick(self.now))

    # ------------------------------------------------------------------------------------------- out

    def run(self, commands: list[Command]) -> None:
        for command in commands:
            self.commands.append(command)
            match command:
                case Send():
                    self._send(command.event)
                case StartTask():
                    self.tasks[command.key] = command
                case InterruptTask():
                    self.tasks.pop(command.key)
                case FeedMic():
                    assert command.index == self.fed
                    self._items.extend(command.rows)
                    self.fed += len(command.rows)
                case PlayAudio(pcm=pcm) if pcm.size:
                    self.wire.append(
                        {
                            "type": "response.output_audio.delta",
                            "event_id": f"sound_{len(self.wire)}",
                            "delta": "AAAA",
                            "response_id": command.response_id,
                            "item_id": command.item_id,
                            "output_index": command.output_index,
                            "content_index": command.content_index,
                        }
                    )
                case EndSession():
                    self.closed = command
                case PlayAudio() | GrantCredit() | ClearAudio() | Underran() | BargedIn():
                    pass

    def _send(self, event: ServerEvent) -> None:
        shown = msgspec.json.decode(encode(event))
        if not shown["type"].startswith("mstar."):
            self.wire.append(shown)

    def running(self, prefix: str) -> StartTask | None:
        """The newest running task whose name begins so."""
        return next((task for task in reversed(self.tasks.values()) if task.task.startswith(prefix)), None)

    def task(self, prefix: str) -> StartTask:
        found = self.running(prefix)
        assert found is not None, f"no task {prefix} among {[task.task for task in self.tasks.values()]}"
        return found

    def types(self, since: int = 0) -> list[str]:
        return [event["type"] for event in self.wire[since:]]

    def last(self, kind: str) -> dict[str, Any]:
        return next(event for event in reversed(self.wire) if event["type"] == kind)

    def played(self) -> int:
        """Samples of all responses given to the client."""
        return sum(command.pcm.size for command in self.commands if isinstance(command, PlayAudio))
