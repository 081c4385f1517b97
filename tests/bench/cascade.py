"""The sentence-pipelined cascade: recogniser, then language model, then voice, each an engine of its own."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import numpy as np

from media.resample import resample
from models.llama.checkpoint import open_checkpoint
from models.llama.prompt import read_chat_template
from models.pull import part_dir
from mstar.tensors import Value
from tests.bench.peers import HEARING_RATE, LanguageModel, Recogniser, Speaker
from tests.bench.sound import RATE, Pcm, first_loud

ENDPOINT_SECONDS = 0.5
"""Silence behind the last sample of speech after which the cascade begins, known to it to the sample."""
SENTENCE = re.compile(r"[.!?](?=\s)")


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds of one turn's parts; `voice` runs from the last sample of speech to the first one above −45 dBFS."""

    voice: float
    recognised: float
    sentence: float
    spoken: float
    silence: float
    heard: str
    said: str


class Cascade:
    """The engines, idle between turns. The language model keeps its cache of a conversation's prompt."""

    def __init__(self) -> None:
        self._recogniser = Recogniser()
        self._language = LanguageModel()
        self._speaker = Speaker()
        self._template = read_chat_template(open_checkpoint(part_dir("smollm2")))

    def turn(self, speech: Pcm, history: list[dict[str, Value]], max_tokens: int) -> Turn:
        """Answer speech [n] at 24 kHz that ends with its last sample; the turn joins the history."""
        silence = np.zeros(round(ENDPOINT_SECONDS * HEARING_RATE), np.float32)
        sound = np.concatenate((resample(speech, RATE, HEARING_RATE), silence))
        began = time.perf_counter()
        heard = self._recogniser.transcribe(sound)
        recognised = time.perf_counter()
        history.append({"role": "user", "content": heard})
        said = self._first_sentence(self._template.render(history), max_tokens)
        written = time.perf_counter()
        pcm = next(self._speaker.sentences(said))
        spoken = time.perf_counter()
        loud = first_loud(pcm)
        if loud is None:
            raise RuntimeError(f"the cascade spoke {said!r} without a sound")
        history.append({"role": "assistant", "content": said})
        quiet = loud / self._speaker.rate
        return Turn(
            voice=ENDPOINT_SECONDS + spoken - began + quiet,
            recognised=recognised - began,
            sentence=written - recognised,
            spoken=spoken - written,
            silence=quiet,
            heard=heard,
            said=said,
        )

    def _first_sentence(self, prompt: str, max_tokens: int) -> str:
        text = ""

        def piece(more: str) -> bool:
            nonlocal text
            text += more
            return SENTENCE.search(text) is not None

        self._language.stream(prompt, max_tokens, piece)
        end = SENTENCE.search(text)
        return (text[: end.end()] if end else text).strip()
