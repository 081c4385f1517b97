"""Families by name, and what each offers to a server (torch-free).

A family is served through its `Card`: the server knows tasks, rates and voices from it and nothing else of the family.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Protocol

from mstar.errors import Rejected
from mstar.graph.declare import Graph
from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class Conversation:
    """A family one can talk with. Names of its tasks, and the rates of its sound.

    Tasks and their inputs → emissions:
      listen      (standing; live stream `mic`)              → `speech`: float, one per mic item
      judge       audio: Slice(mic)                          → `complete`: float, the turn model's p(turn is over)
      transcribe  audio: Slice(mic)                          → `transcript`: {"text", "segments": [{"text","start","end"}]} (s)
      answer_*    history: [{"role","content"}], tools       → `text`: {"text": delta, "at": first character},
                  audio: Slice(mic) in answer_audio_*          `transcript` of the audio, as above,
                                                               `alignment`: {"words": [{"from","to","start","end"}]} characters
                                                                of the answer's text and samples of its sound,
                                                               `audio`: {"pcm": float32 [n], "start": sample},
                                                               `call`: {"name","arguments"}: a function the model calls,
                                                               `usage`: {"prompt","reused","generated","reason": stop|length}
    `answer_audio_*` takes the microphone's words as the last user message, behind `history`.
    The emissions `text`, `alignment` and `audio` come in only those answers whose name says so: `_speech` or `_text`.
    """

    mic_rate: int = 16000
    mic_item: int = 512
    speech_rate: int = 22050
    voices: tuple[str, ...] = ("default",)
    listen: str = "listen"
    judge: str = "judge"
    transcribe: str = "transcribe"
    answer: Mapping[tuple[bool, bool], str] = field(
        default_factory=lambda: {
            (True, True): "answer_audio_speech",
            (True, False): "answer_audio_text",
            (False, True): "answer_speech",
            (False, False): "answer_text",
        }
    )  # (audio in, speech out) → task


@dataclass(frozen=True, slots=True)
class Card:
    """A family as the server sees it."""

    name: str
    conversation: Conversation | None = None
    created: int = 0  # unix seconds, for /v1/models


class Family(Protocol):
    """The module-level `FAMILY` object of a family's `model.py`."""

    @property
    def card(self) -> Card: ...

    def graph(self, settings: Mapping[str, Value]) -> Graph:
        """The Walk Graph; settings as given on the command line (checkpoint paths, voice). Raises Rejected."""
        ...


BUILT_IN: Mapping[str, str] = {
    "toy": "models.toy.model",
    "voice": "models.voice.model",
}


def family(name: str) -> Family:
    """A built-in family, one installed under the entry point group `mstar.families`, or a module path `package.module`.

    Raises Rejected naming the known ones.
    """
    module = BUILT_IN.get(name)
    if module is None:
        for point in entry_points(group="mstar.families"):
            if point.name == name:
                module = point.value
    if module is None and "." in name:
        module = name
    if module is None:
        raise Rejected(f"unknown family {name!r}; known: {', '.join(sorted(BUILT_IN))}", code="unknown_family", param="family")
    try:
        found: Family = importlib.import_module(module).FAMILY
    except (ModuleNotFoundError, AttributeError) as cause:
        raise Rejected(f"family {name!r} can not be loaded from {module}: {cause}", code="unknown_family", param="family") from cause
    return found
