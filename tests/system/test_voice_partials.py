"""A transcription session with real speech: the session core over the voice family, step by step in one process."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from media.resample import resample
from models.voice.model import CONVERSATION, FAMILY
from mstar.client import Emission, Request, RequestEnded, Session, Slice
from mstar.local import LocalSystem
from server.events.server import encode
from server.session.commands import Command, FeedMic, InterruptTask, Send, StartTask
from server.session.core import SessionCore
from server.session.options import Options
from server.session.tasks import Ended
from tests.system.toy import sound_of
from tests.wer import word_error_rate

TEXT = "The harbour was quiet before the first boat came in. Please leave the blue folder on my desk."
RATE = CONVERSATION.mic_rate
STEP = RATE // 4
DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"


class Listener:
    """A session's shell on a clock that goes with its sound; whatever the family emits comes within a step."""

    def __init__(self, system: LocalSystem, runtime: Session) -> None:
        self.now = 0.0
        self.wire: list[dict[str, Any]] = []
        self.asked: list[StartTask] = []
        self._system = system
        self._runtime = runtime
        self._requests: dict[int, Request] = {}
        counts: dict[str, itertools.count[int]] = {}

        def ids(kind: str) -> str:
            return f"{kind}_{next(counts.setdefault(kind, itertools.count(1)))}"

        self._core = SessionCore(CONVERSATION, "voice", Options(transcribing=True), ids, 0.0, 0)
        self._run(self._core.open())

    def hear(self, sound: np.ndarray) -> None:
        for at in range(0, len(sound), STEP):
            part = sound[at : at + STEP]
            self.now += len(part) / RATE
            self._run(self._core.hear(part, self.now))
            self._settle()

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.wire if event["type"] == kind]

    @property
    def words(self) -> str:
        return "".join(event["delta"] for event in self.told(DELTA))

    def _run(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Send(event):
                    self.wire.append(msgspec.json.decode(encode(event)))
                case FeedMic(index, rows):
                    self._runtime.feed("mic", index, rows, rows=True)
                case StartTask():
                    self.asked.append(command)
                    given = (command.inputs, command.settings, command.positions)
                    self._requests[command.key] = self._runtime.start(command.task, *given)
                case InterruptTask(key):
                    self._requests.pop(key).interrupt()
                case _:
                    raise AssertionError(command)

    def _settle(self) -> None:
        while True:
            self._system.run()
            events = [(key, event) for key, request in list(self._requests.items()) for event in request.drain()]
            if not events:
                return
            for key, event in events:
                if key not in self._requests:
                    continue
                match event:
                    case Emission():
                        commands = self._core.emission(key, event.output, event.index, event.value, self.now)
                    case RequestEnded():
                        del self._requests[key]
                        commands = self._core.ended(key, Ended(event.status, event.code, event.cause), self.now)
                self._run(commands)


@pytest.fixture(scope="module")
def system(smollm2: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> LocalSystem:
    settings = {"llm": str(smollm2), "asr": str(whisper_tiny_en), "voice": str(piper_joe), "ear": str(ear)}
    return LocalSystem({"voice": FAMILY.graph({})}, settings={"voice": settings})


def test_words_come_while_somebody_speaks_and_are_never_taken_back(system: LocalSystem) -> None:
    baseline = system.census()
    session = system.open("voice")
    speaking = session.start("say", {}, {"seed": 3})
    speaking.credit("audio", 10**9)
    speaking.feed("written", 0, TEXT, cut=True)
    speaking.commit("written", 1)
    system.run()
    sound = resample(sound_of(speaking.drain()), CONVERSATION.speech_rate, RATE).astype(np.float32)

    listener = Listener(system, session)
    half = len(sound) // 2
    listener.hear(sound[:half])
    early = listener.words
    assert len(early.split()) >= 3
    assert not listener.told(COMPLETED)
    listener.hear(np.concatenate((sound[half:], np.zeros(RATE, np.float32))))
    turns = listener.told(COMPLETED)
    said = " ".join(turn["transcript"] for turn in turns)
    for turn in turns:
        told = "".join(each["delta"] for each in listener.told(DELTA) if each["item_id"] == turn["item_id"])
        assert told == turn["transcript"]
    assert said.startswith(early)
    assert word_error_rate([(TEXT, said)]) < 0.15
    passes = [each for each in listener.asked if each.task == "transcribe"]
    slices = [given for each in passes if isinstance(given := each.inputs["audio"], Slice)]
    assert len(slices) == len(passes)
    heard = sum(each.stop - each.start for each in slices)
    ratio = heard * CONVERSATION.mic_item / len(sound)
    print(
        f"\n{len(passes)} passes over {ratio:.1f} times the sound of {len(sound) / RATE:.1f} s; told at half: {early!r}"
    )
    assert ratio < 6
    system.close(session)
    assert system.census() == baseline
