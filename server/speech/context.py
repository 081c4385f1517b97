"""A context: text comes in pieces, sound goes out by absolute sample position (pure).

A *segment* is what lies between two flushes. Each is one request of the family's `say` task, so that its end is known
to the sample; the segments of a context lie end to end, in text and in sound, and at most `IN_FLIGHT` run at once. No
sockets, no tasks, no clock: every entry returns the orders for the runtime and the events for the client of its step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from media.frames import PcmF
from mstar.errors import Rejected
from mstar.tensors import Value
from server.session import emissions
from server.session.alignment import Word as Aligned

MOST_TEXT = 100_000
"""Characters of a context that may wait to be said."""
MOST_SEGMENTS = 1000
"""Segments of a context that may wait to be said."""
IN_FLIGHT = 2
"""Segments of a context that the runtime works at: the one that sounds and the one behind it."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Start a request for a segment."""

    segment: int


@dataclass(frozen=True, slots=True)
class Write:
    """More text of a segment."""

    segment: int
    text: str


@dataclass(frozen=True, slots=True)
class Close:
    """The text of a segment is whole."""

    segment: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more is wanted of a segment."""

    segment: int


@dataclass(frozen=True, slots=True)
class Sound:
    """float32 [n] at the family's rate; `start` is its first sample in the context's sound."""

    start: int
    pcm: PcmF


@dataclass(frozen=True, slots=True)
class Word:
    """A word with the text that was passed over before it, spoken in samples [start, end) of the context's sound."""

    before: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Words:
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Flushed:
    """All that was written before the flush has been given out: `samples` of the context's sound so far.

    `rest`: text behind the segment's last word. `id` is the one given to `flush`; None for the end of the context.
    """

    id: int | None
    samples: int
    rest: str
    reason: str = "stop"  # "length" where the family cut something short


@dataclass(frozen=True, slots=True)
class Ended:
    """The one terminal event. `reason` of a `done` as of `Flushed`."""

    status: Literal["done", "cancelled", "failed"]
    reason: str = "stop"
    error: Rejected | None = None


Order = Begin | Write | Close | Stop
Event = Sound | Words | Flushed | Ended
Step = list[Order | Event]


@dataclass(slots=True)
class _Segment:
    number: int
    text: str = ""
    unsent: str = ""  # of `text`, what waits for its request to begin
    closed: bool = False
    flush: int | None = None
    begun: bool = False
    sealed: bool = False  # its request knows that the text is whole
    told: int = 0  # characters given out with words
    samples: int = 0
    trimmed: int | None = None  # known with the first sound
    timed: list[Aligned] = field(default_factory=list)  # words that wait for `trimmed`
    waiting: list[tuple[str, Value]] = field(default_factory=list)  # emissions before its turn has come
    reason: str = "stop"
    end: Ended | None = None

    @property
    def silent(self) -> bool:
        return not self.text.strip()


class Context:
    """Text in, sound out. After its `Ended` every entry returns nothing, and `append` raises."""

    def __init__(self) -> None:
        self.samples = 0
        """Samples given out."""
        self.ended = False
        self.tokens = (0, 0)
        """Of the language model, read and written, where the family's voice is one."""
        self._segments: deque[_Segment] = deque()
        self._count = 0
        self._half = ""  # a high surrogate whose other half is to come
        self._closing = False
        self._reason = "stop"

    @property
    def waiting(self) -> int:
        """Characters written that have not been said."""
        return sum(len(each.text) - each.told for each in self._segments)

    @property
    def idle(self) -> bool:
        """Nothing is written that was not given out."""
        return not self._segments

    @property
    def of_segment(self) -> int:
        """Samples given out of the segment that sounds."""
        return self._segments[0].samples if self._segments else 0

    # ------------------------------------------------------------------------------------------- the client

    def append(self, text: str, param: str = "text") -> Step:
        """More text, cut anywhere, inside a surrogate pair too. Raises Rejected behind the end, or for too much."""
        if self._closing or self.ended:
            raise Rejected("The context has ended: it takes no more text.", code="context_ended", param=param)
        if len(text) + self.waiting > MOST_TEXT:
            raise Rejected(f"More than {MOST_TEXT} characters wait to be said.", code="text_too_long", param=param)
        text = self._whole(text)
        if not text:
            return []
        segment = self._open()
        segment.text += text
        segment.unsent += text
        return self._advance()

    def check(self, param: str = "flush") -> None:
        """Raises Rejected where no more may be flushed."""
        if len(self._segments) >= MOST_SEGMENTS:
            raise Rejected(f"{MOST_SEGMENTS} flushes wait to be said.", code="too_many_flushes", param=param)

    def flush(self, id: int | None = None) -> Step:  # noqa: A002 - the protocols' own word
        """Say what is written so far; `Flushed(id)` follows its last sample. Raises as `check`."""
        if self._closing or self.ended:
            return []
        self.check()
        return self._flush(id)

    def _flush(self, number: int | None) -> Step:
        segment = self._open()
        loose = _mended(self._half)
        self._half = ""
        segment.text += loose
        segment.unsent += loose
        segment.closed, segment.flush = True, number
        return self._advance()

    def end(self) -> Step:
        """No more text; `Ended` follows the last sample."""
        if self._closing or self.ended:
            return []
        step = self._flush(None)
        self._closing = True
        return step + self._finish()

    def cancel(self) -> Step:
        """Nothing more is wanted."""
        return self._stop(Ended("cancelled"))

    # ------------------------------------------------------------------------------------------- the runtime

    def emission(self, segment: int, output: str, value: Value) -> Step:
        """A segment's request emitted something."""
        found = self._find(segment)
        if found is None:
            return []
        if found is not self._segments[0]:
            found.waiting.append((output, value))
            return []
        return self._emitted(found, output, value)

    def done(self, segment: int, error: Rejected | None = None) -> Step:
        """A segment's request has ended, well or with an error."""
        found = self._find(segment)
        if found is None:
            return []
        found.end = Ended("done") if error is None else Ended("failed", error=error)
        return self._advance()

    def sounding(self, segment: int) -> bool:
        """Whether it is this segment's turn."""
        return bool(self._segments) and self._segments[0].number == segment

    # ------------------------------------------------------------------------------------------- inside

    def _open(self) -> _Segment:
        if not self._segments or self._segments[-1].closed:
            self._segments.append(_Segment(self._count))
            self._count += 1
        return self._segments[-1]

    def _find(self, number: int) -> _Segment | None:
        return next((each for each in self._segments if each.number == number), None)

    def _whole(self, text: str) -> str:
        """Text without halves of characters: the last one waits, others read as U+FFFD."""
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return _mended(text)

    def _advance(self) -> Step:
        """Begin what may begin, end what has ended, as far as that goes."""
        step: Step = []
        while self._segments:
            for segment in list(self._segments)[:IN_FLIGHT]:
                step += self._drive(segment)
            head = self._segments[0]
            for output, value in head.waiting:
                step += self._emitted(head, output, value)
            head.waiting.clear()
            if head.end is not None and head.end.status == "failed":
                return step + self._stop(head.end)
            if not (head.end is not None or (head.closed and head.silent)):
                break
            rest = head.text[head.told :]
            self._segments.popleft()
            step.append(Flushed(head.flush, self.samples, rest, head.reason))
        return step + self._finish()

    def _drive(self, segment: _Segment) -> Step:
        if segment.silent:
            return []
        step: Step = []
        if not segment.begun:
            segment.begun = True
            step.append(Begin(segment.number))
        if segment.unsent:
            step.append(Write(segment.number, segment.unsent))
            segment.unsent = ""
        if segment.closed and not segment.sealed:
            segment.sealed = True
            step.append(Close(segment.number))
        return step

    def _finish(self) -> Step:
        if not self._closing or self._segments or self.ended:
            return []
        self.ended = True
        return [Ended("done", self._reason)]

    def _stop(self, why: Ended) -> Step:
        if self.ended:
            return []
        self.ended = True
        running = [each.number for each in self._segments if each.begun and each.end is None]
        self._segments.clear()
        return [*(Stop(number) for number in running), why]

    def _emitted(self, segment: _Segment, output: str, value: Value) -> Step:
        match output:
            case "audio":
                return self._sound(segment, value)
            case "alignment":
                segment.timed += emissions.words(value)
                return self._words(segment)
            case "usage":
                tokens = emissions.tokens(value)
                self.tokens = (self.tokens[0] + tokens.prompt, self.tokens[1] + tokens.generated)
                if tokens.reason == "length":
                    segment.reason = self._reason = "length"
        return []

    def _sound(self, segment: _Segment, value: Value) -> Step:
        pcm = emissions.pcm(value)
        if segment.trimmed is None:
            segment.trimmed = emissions.trimmed(value)
        words = self._words(segment)
        sound = Sound(self.samples, pcm)
        segment.samples += len(pcm)
        self.samples += len(pcm)
        return [*words, sound]

    def _words(self, segment: _Segment) -> Step:
        """Words whose times can be told: silence is cut from the beginning of the sound, not of the times."""
        if segment.trimmed is None or not segment.timed:
            return []
        first = self.samples - segment.samples
        words = []
        for each in segment.timed:
            before = segment.text[segment.told : each.first]
            start, end = (first + max(0, at - segment.trimmed) for at in (each.start, each.end))
            words.append(Word(before, segment.text[max(segment.told, each.first) : each.last], start, end))
            segment.told = max(segment.told, each.last)
        segment.timed.clear()
        return [Words(tuple(words))]


def _mended(text: str) -> str:
    """Halves of a character beside each other are one; a lone half reads as U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
