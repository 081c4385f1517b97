"""Text → sentences → prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from models.blocks.values import integer, items, record, text
from models.llama.tokenizer import Tokenizer
from models.orpheus.nodes.checkpoints import speech_model
from models.orpheus.prompt import prompt_ids, spoken_form, voice_of
from models.orpheus.tokens import SpeechTokens
from models.speech.clauses import ClauseRules, Clauses
from models.speech.passages import Place
from mstar.errors import Rejected
from mstar.submodule import STATE, Call, Many, Output, Outputs, Packed, Step
from mstar.tensors import Value

SENTENCES = ClauseRules(first_words=1000, first_link_words=0, first_chars=400, words=1000, chars=400)
"""Sentences only, cut at a space beyond 400 characters (about 25 s of speech)."""


class SentenceSubmodule:
    """Streaming input `text` (pieces). The end of a segment is a border.

    Output `sentence`, items {"spoken": what is to be said, "start", "end": its characters in the response's text}; a
    sentence in which nothing can be said is left out. State: the splitter's.
    """

    max_batch = 64

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        done = [self._read(call) for call in step.calls]
        found, states = zip(*done, strict=True)
        return {"sentence": found, STATE: states}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _read(self, call: Call) -> tuple[Many | None, Value]:
        state = _clauses(call.state)
        span = call.spans["text"]
        found, state = state.feed("".join(text(item) for item in items(call.inputs["text"])))
        if span.segment_final or span.final:
            rest, state = state.flush()
            found += rest
        said: list[Value] = [
            {"spoken": spoken, "start": each.start, "end": each.end}
            for each in found
            if (spoken := spoken_form(each.text, each.place))
        ]
        after: dict[str, Value] = {"pending": state.pending, "start": state.start, "count": state.count}
        return Many(tuple(said)) if said else None, {**after, "place": state.place.value()}


def _clauses(state: Value) -> Clauses:
    if state is None:
        return Clauses(SENTENCES)
    got = record(state)
    begun = integer(got["start"]), integer(got["count"]), Place.of(got["place"])
    return Clauses(SENTENCES, text(got["pending"]), *begun)


class SpeechPromptSubmodule:
    """Input `sentence` → `tokens` [n] int64. Settings: `voice`; `speed`, of which the model knows only 1."""

    max_batch = 64

    def __init__(self, tokenizer: Tokenizer, tokens: SpeechTokens) -> None:
        self.tokenizer = tokenizer
        self.tokens = tokens

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        return {"tokens": [self._ids(call) for call in step.calls]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _ids(self, call: Call) -> np.ndarray:
        voice = voice_of(call.settings)
        if (speed := call.settings.get("speed", 1)) not in (None, 1):
            raise Rejected(f"speed must be 1: this model has no other, got {speed!r}", param="speed")
        spoken = text(record(call.inputs["sentence"])["spoken"])
        return np.array(prompt_ids(self.tokenizer, self.tokens, voice, spoken), dtype=np.int64)


def sentences(_: Mapping[str, Value]) -> SentenceSubmodule:
    """Pieces of text → sentences."""
    return SentenceSubmodule()


def prompt(settings: Mapping[str, Value]) -> SpeechPromptSubmodule:
    """A sentence → the ids of its prompt."""
    model = speech_model(settings)
    return SpeechPromptSubmodule(model.tokenizer, model.tokens)
