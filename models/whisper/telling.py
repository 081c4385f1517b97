"""A transcript with the times of its words and how sure the network is of them, piece by piece."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from models.blocks.values import floats, integer, ints, record
from models.whisper.config import STAMP_SECONDS, Ids
from models.whisper.decoding import believable
from models.whisper.network import Whisper
from models.whisper.times import Floats, Heads, frames_of, read
from models.whisper.tokenizer import Tokenizer
from mstar.submodule import STATE, Call, Output, Outputs, Packed, Step
from mstar.tensors import Many, Value

EARLY = 1
"""Frames by which a token begins before the frame that its attention jumps to (measured on tiny.en: 25 ms)."""
ROWS = 64
"""Positions whose probabilities are computed at once: a row is as long as the vocabulary."""


@dataclass(frozen=True, slots=True)
class Told:
    """A token of text: its place in the transcript's ids, when it was said (s), how likely the network found it."""

    place: int
    token: int
    start: float
    end: float
    logprob: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """Text between two times (s), as places in the transcript's ids."""

    start: float
    end: float
    places: tuple[int, ...]


@dataclass(slots=True)
class Word:
    """Tokens from a blank to the next; marks behind a word belong to it and take no time."""

    raw: bytes
    start: float
    end: float
    logprobs: list[float] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", errors="replace").strip()


class TellingSubmodule:
    """Inputs `states` [frames, d_model], `first` (id), `tokens` (ids) and `seconds` of one piece after another.

    Output `recognised`, one a piece, times in seconds from the start of the first: {"text", "start", "end" (of the
    piece), "no_speech" (probability), "language", "segments": [{"text", "start", "end", "tokens", "logprob" (mean),
    "compression"}], "words": [{"text", "start", "end", "logprob"}], "tokens": [{"text", "bytes", "logprob"}]}.
    Words do not overlap and never go back. Output `tokens`: the ids of it, one item each. State: seconds so far.
    """

    max_batch = 1

    def __init__(self, network: Whisper, ids: Ids, tokenizer: Tokenizer, heads: Heads) -> None:
        self.network = network
        self.ids = ids
        self.tokenizer = tokenizer
        self.heads = heads

    def collate(self, calls: Sequence[Call]) -> Packed:  # noqa: ARG002 - a piece is read as a whole
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:  # noqa: ARG002
        done = [self._tell(call) for call in step.calls]
        recognised, tokens, ends = zip(*done, strict=True)
        return {"recognised": recognised, "tokens": tokens, STATE: [{"seconds": end} for end in ends]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:  # noqa: ARG002 - a firing is a whole piece
        return False

    def _tell(self, call: Call) -> tuple[Value, Many, float]:
        offset = 0.0 if call.state is None else float(floats(record(call.state)["seconds"]))
        seconds = float(floats(call.inputs["seconds"]))
        taken = believable(
            [integer(call.inputs["first"]), *ints(call.inputs["tokens"]).tolist()], seconds, self.ids.end
        )
        language = str(call.settings.get("language") or "en")
        prompt = self.ids.prompt(language=language, translate=bool(call.settings.get("translate", False)))
        states = torch.as_tensor(call.inputs["states"]).to(self.network.device)
        parts = stretches(taken, self.ids, seconds)
        told, no_speech = self._read(states, prompt, taken, parts, seconds)
        sure = {each.place: each.logprob for each in told}
        value: Value = {
            "text": self.tokenizer.text([each.token for each in told]).strip(),
            "start": offset,
            "end": offset + seconds,
            "no_speech": no_speech,
            "language": language,
            "segments": [self._segment(part, sure, taken, offset) for part in parts],
            "words": [
                {
                    "text": word.text,
                    "start": offset + word.start,
                    "end": offset + word.end,
                    "logprob": float(np.mean(word.logprobs)),
                }
                for word in self._words(told)
            ],
            "tokens": [
                {
                    "text": self.tokenizer.text([each.token]),
                    "bytes": list(self.tokenizer.raw([each.token])),
                    "logprob": each.logprob,
                }
                for each in told
            ],
        }
        return value, Many(tuple(taken)), offset + seconds

    def _read(
        self,
        states: torch.Tensor,
        prompt: Sequence[int],
        taken: Sequence[int],
        parts: Sequence[Stretch],
        seconds: float,
    ) -> tuple[list[Told], float]:
        """The tokens of text among those taken, and the probability that nobody speaks."""
        reading = read(self.network, states, [*prompt, *taken], self.heads)
        no_speech = float(self._logits(reading.hidden[:1]).softmax(-1)[0, self.ids.no_speech])
        places = [place for part in parts for place in part.places]
        if not places:
            return [], no_speech
        frames = min(len(states), max(1, round(seconds / STAMP_SECONDS)))
        rows = [len(prompt) - 1 + place for place in places]  # the positions that foretell them
        closing = len(prompt) + len(taken) - 2  # what follows the text looks at what follows it
        at = frames_of(reading.looked[:, [*rows, closing]], frames)[:-1] - EARLY
        borders = at * STAMP_SECONDS
        sure = self._logprobs(reading.hidden[rows], [taken[place] for place in places])
        limits = [(part.start, part.end) for part in parts for _ in part.places]
        told = []
        for number, (place, (low, high)) in enumerate(zip(places, limits, strict=True)):
            start, end = (float(min(max(borders[each], low), high)) for each in (number, number + 1))
            told.append(Told(place, taken[place], start, max(start, end), float(sure[number])))
        return told, no_speech

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return torch.nn.functional.linear(hidden, self.network.embedding)

    def _logprobs(self, hidden: torch.Tensor, tokens: Sequence[int]) -> Floats:
        """hidden [n, d_model] → log-probability of each position's token [n]."""
        wanted = torch.tensor(tokens, device=hidden.device)[:, None]
        parts = [
            self._logits(rows).log_softmax(-1).gather(1, own)
            for rows, own in zip(hidden.split(ROWS), wanted.split(ROWS), strict=True)
        ]
        return np.asarray(torch.cat(parts)[:, 0].cpu().numpy(), np.float32)

    def _segment(self, stretch: Stretch, sure: Mapping[int, float], taken: Sequence[int], offset: float) -> Value:
        said = self.tokenizer.text([taken[place] for place in stretch.places]).strip()
        raw = said.encode()
        return {
            "text": said,
            "start": offset + stretch.start,
            "end": offset + stretch.end,
            "tokens": [taken[place] for place in stretch.places],
            "logprob": float(np.mean([sure[place] for place in stretch.places])),
            "compression": len(raw) / len(zlib.compress(raw)) if raw else 0.0,
        }

    def _words(self, told: Sequence[Told]) -> list[Word]:
        words: list[Word] = []
        for each in told:
            raw = self.tokenizer.raw([each.token])
            if not words or raw.startswith(b" "):
                words.append(Word(raw, each.start, each.end, [each.logprob]))
                continue
            words[-1].raw += raw
            words[-1].logprobs.append(each.logprob)
            if _sounds(raw):
                words[-1].end = max(words[-1].end, each.end)
        return [word for word in words if word.text]


def _sounds(raw: bytes) -> bool:
    """Whether bytes of a word are more than marks; parts of longer characters count as letters."""
    return any(byte > 0x7F or chr(byte).isalnum() for byte in raw)


def stretches(taken: Sequence[int], ids: Ids, seconds: float) -> list[Stretch]:
    """The stretches of text between times, all within `seconds`; the last may lack its closing time."""
    found: list[Stretch] = []
    start, places = 0.0, list[int]()
    for place, token in enumerate(taken):
        if token >= ids.first_stamp:
            at = min((token - ids.first_stamp) * STAMP_SECONDS, seconds)
            if places:
                found.append(Stretch(start, max(at, start), tuple(places)))
            start, places = at, []
        elif token != ids.end:
            places.append(place)
    if places:
        found.append(Stretch(start, max(seconds, start), tuple(places)))
    return found


class CaptionSubmodule:
    """Streaming input `tokens` (ids of Whisper, piece after piece) → `heard`, {"text": new text}.

    State: bytes of an unfinished character, and whether something was said.
    """

    max_batch = 16

    def __init__(self, tokenizer: Tokenizer, ids: Ids) -> None:
        self.tokenizer = tokenizer
        self.ids = ids

    def collate(self, calls: Sequence[Call]) -> Packed:  # noqa: ARG002 - nothing of it is a tensor
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:  # noqa: ARG002
        done = [self._read(call) for call in step.calls]
        return {"heard": [heard for heard, _ in done], STATE: [state for _, state in done]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:  # noqa: ARG002 - the stream's end ends it
        return False

    def _read(self, call: Call) -> tuple[Value, Value]:
        state: Mapping[str, Value] = {"bytes": b"", "said": False} if call.state is None else record(call.state)
        held, said = state["bytes"], bool(state["said"])
        assert isinstance(held, bytes)
        fresh = ""
        for token in ints(call.inputs["tokens"]).tolist():
            if token >= self.ids.first_stamp or token == self.ids.end:  # a time: no character reaches over it
                fresh, held = fresh + held.decode("utf-8", errors="replace"), b""
                continue
            piece, held = _whole(held + self.tokenizer.raw([token]))
            fresh += piece
        if not said:
            fresh = fresh.lstrip()
        value: Value = {"text": fresh} if fresh else None
        return value, {"bytes": held, "said": said or bool(fresh)}


def _whole(raw: bytes) -> tuple[str, bytes]:
    """The text of bytes up to their last whole character, and the rest."""
    for cut in range(min(3, len(raw)) + 1):
        head, tail = raw[: len(raw) - cut], raw[len(raw) - cut :]
        try:
            return head.decode("utf-8"), tail
        except UnicodeDecodeError:
            continue
    return raw.decode("utf-8", errors="replace"), b""
