"""The two nodes before a voice: tokens or pieces of text → clauses, clause → phoneme ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.blocks.values import integer, ints, items, record, text
from models.speech.clauses import Clause, ClauseRules, Clauses
from models.speech.normalise import normalise
from models.speech.passages import Place
from models.speech.phonemes import phonemize
from mstar.submodule import STATE, Call, Many, Outputs, Packed, Step
from mstar.tensors import Value

Detokenise = Callable[[Sequence[int]], str]
"""Token ids → text; an unfinished character at the end reads as U+FFFD, tokens that say nothing as ""."""

Alphabet = Callable[[str], tuple[NDArray[np.int64], NDArray[np.int64]]]
"""Phonemes → a voice's ids [n], and for each phoneme and the end the index of its first id [m + 1]."""

_UNFINISHED = "\ufffd"
_CONTEXT = 4  # settled tokens that the next ones are read with, for tokenizers that look back (spaces)


@dataclass(frozen=True, slots=True)
class Reading:
    """State: tokens that are not behind us yet, how many of them were read, and the clauses under way."""

    tokens: tuple[int, ...] = ()
    settled: int = 0  # of `tokens`, those whose text has been given out
    count: int = 0  # tokens of the response so far
    clauses: Clauses = Clauses()  # noqa: RUF009 - frozen

    @classmethod
    def of(cls, value: Value, rules: ClauseRules) -> Reading:
        if value is None:
            return cls(clauses=Clauses(rules))
        got = record(value)
        begun = integer(got["start"]), integer(got["clauses"]), Place.of(got["place"])
        clauses = Clauses(rules, text(got["pending"]), *begun)
        tokens = tuple(int(t) for t in ints(got["tokens"]))
        return cls(tokens, integer(got["settled"]), integer(got["count"]), clauses)

    def value(self) -> Value:
        return {
            "tokens": np.array(self.tokens, np.int64),
            "settled": self.settled,
            "count": self.count,
            "pending": self.clauses.pending,
            "start": self.clauses.start,
            "clauses": self.clauses.count,
            "place": self.clauses.place.value(),
        }

    def read(self, new: Sequence[int], detokenise: Detokenise, *, last: bool) -> tuple[str, Reading]:
        """The text that `new` tokens finish, and the next state."""
        tokens = (*self.tokens, *new)
        before = detokenise(tokens[: self.settled]) if self.settled else ""
        whole = detokenise(tokens) if tokens else ""
        count = self.count + len(new)
        if whole.endswith(_UNFINISHED) and not last:
            return "", Reading(tokens, self.settled, count, self.clauses)
        kept = tokens[-_CONTEXT:]
        return whole[len(before) :], Reading(kept, len(kept), count, self.clauses)


class ClauseSubmodule:
    """Streaming input `token` (ids; one or more at once) or `text` (pieces). The end of a segment is a border.

    Outputs: `clause`, items {"text": what is written, "spoken": what is to be said, "starts", "ends": int64 [characters
    of spoken], the characters of the response each comes from, "start", "end": the clause's characters in the response,
    "index"}; a clause in which nothing can be said is left out. `text`, {"text": new text, "start": its first character
    in the response, "tokens": tokens read so far}.
    """

    max_batch = 64

    def __init__(
        self, detokenise: Detokenise | None = None, *, language: str = "en-us", rules: ClauseRules | None = None
    ) -> None:
        self.detokenise = detokenise
        self.language = language
        self.rules = rules or ClauseRules()

    def collate(self, calls: Sequence[Call]) -> Packed:  # noqa: ARG002 - text has no tensors
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:  # noqa: ARG002
        done = [self._advance(call) for call in step.calls]
        clauses, texts, states = zip(*done, strict=True)
        outputs = {"clause": clauses, STATE: states}
        return outputs if self.detokenise is None else {**outputs, "text": texts}

    def verdict(self, call: Call, outputs: object) -> bool:  # noqa: ARG002 - the stream's end ends it
        return False

    def _advance(self, call: Call) -> tuple[Many | None, Value, Value]:
        reading = Reading.of(call.state, self.rules)
        stream = "token" if "token" in call.inputs else "text"
        span = call.spans.get(stream)
        last = span is not None and (span.segment_final or span.final)
        if stream == "token":
            if self.detokenise is None:
                raise TypeError("clause node: tokens came in, but there is no detokeniser")
            new = [] if call.inputs["token"] is None else [int(t) for t in ints(call.inputs["token"])]
            piece, reading = reading.read(new, self.detokenise, last=last)
        else:
            piece = "".join(text(item) for item in items(call.inputs["text"]))
        at = reading.clauses.start + len(reading.clauses.pending)
        found, clauses = reading.clauses.feed(piece)
        if last:
            rest, clauses = clauses.flush()
            found += rest
        reading = Reading(reading.tokens, reading.settled, reading.count, clauses)
        records = tuple(r for c in found if (r := self._record(c)) is not None)
        shown: Value = {"text": piece, "start": at, "tokens": reading.count} if piece else None
        return (Many(records) if records else None), shown, reading.value()

    def _record(self, clause: Clause) -> Value:
        spoken = normalise(clause.text, self.language, clause.place)
        said, starts, ends = spoken.text, list(spoken.starts), list(spoken.ends)
        if not any(c.isalnum() for c in said):
            return None
        if clause.open:  # the voice must not fall as at the end of a sentence
            said = said.rstrip()
            starts, ends = [*starts[: len(said)], ends[len(said) - 1]], [*ends[: len(said)], ends[len(said) - 1]]
            said += ","
        return {
            "text": clause.text,
            "spoken": said,
            "starts": np.array(starts, np.int64) + clause.start,
            "ends": np.array(ends, np.int64) + clause.start,
            "start": clause.start,
            "end": clause.end,
            "index": clause.index,
        }


class PhonemeSubmodule:
    """Stateless. Input `clause`: a record of the clause node, or plain text.

    Output `phonemes`: {"ids": int64 [n], "words": int64 [w, 4] (first and last character in the response, first and
    last id; words spoken as one have the same ids), "start", "end": the clause's characters in the response}, or
    nothing if nothing in it can be spoken. espeak-ng serves one thread at a time: one node, one thread.
    """

    max_batch = 16

    def __init__(self, alphabet: Alphabet, language: str) -> None:
        self.alphabet = alphabet
        self.language = language

    def collate(self, calls: Sequence[Call]) -> Packed:  # noqa: ARG002 - text has no tensors
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:  # noqa: ARG002
        return {"phonemes": [self._speak(call.inputs["clause"]) for call in step.calls]}

    def verdict(self, call: Call, outputs: object) -> bool:  # noqa: ARG002 - the stream's end ends it
        return False

    def _speak(self, clause: Value) -> Value:
        if clause is None:  # an end with nothing new
            return None
        if isinstance(clause, str):
            spoken, start, end = clause, 0, len(clause)
            starts = np.arange(len(clause))
            ends = starts + 1
        else:
            got = record(clause)
            spoken, start, end = text(got["spoken"]), integer(got["start"]), integer(got["end"])
            starts, ends = ints(got["starts"]), ints(got["ends"])
        phonemes = phonemize(spoken, self.language)
        if not phonemes.words:
            return None
        ids, firsts = self.alphabet(phonemes.text)
        words = [
            (starts[w.start], ends[w.end - 1], firsts[w.first], firsts[min(w.last, len(firsts) - 1)])
            for w in phonemes.words
        ]
        return {"ids": ids, "words": _one_each(np.array(words, np.int64)), "start": start, "end": end}


def _one_each(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Several spoken words of one written word ("example dot com") → one row."""
    rows: list[NDArray[np.int64]] = []
    for row in words:
        if rows and row[0] < rows[-1][1]:
            rows[-1] = np.array([rows[-1][0], max(rows[-1][1], row[1]), rows[-1][2], row[3]], np.int64)
        else:
            rows.append(row)
    return np.stack(rows)
