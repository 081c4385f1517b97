"""Which token may come next, and when a transcript has ended: pure rules on logits.

The time rules are those of the published decoder (Radford et al. 2022, §4.5, as the public hub's checkpoints are run):
times come in pairs around text, never go back, and a time is taken when all times together are likelier than any text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from models.whisper.config import STAMP_SECONDS, Ids
from mstar.tensors import Value

END_SLACK = 0.5
"""Seconds before the end of the audio from which a closing time is taken for the end of the transcript."""
TOKENS_PER_SECOND = 12
"""Fastest speech believed in; a transcript of more tokens (plus `TOKENS_AT_LEAST`) is a runaway and is cut."""
TOKENS_AT_LEAST = 12

TWICE_PER_SECOND = 6
"""Tokens a second above which nobody says the same twice: it is half again as fast as people speak."""
TWICE_AT_LEAST = 4
"""Tokens of what is taken for said twice."""

NO_SPEECH = 0.8
"""Probability of nobody speaking above which nothing is transcribed. tiny.en gives more than 0.9 to silence and noise,
less than 0.11 to spoken sentences; without this rule it fills silence with dots."""


def believed(seconds: float) -> int:
    """Most tokens that are believed to have been said in so many seconds."""
    return TOKENS_AT_LEAST + int(seconds * TOKENS_PER_SECOND)


def without_loop(ids: Sequence[int], seconds: float) -> Sequence[int]:
    """A transcript as it was before it ran away: what was cut at its limit ends before it says a thing the second time.

    A loop is three copies, one behind the other. A speaker who repeats himself is slower than the limit.
    """
    if len(ids) < believed(seconds):
        return ids
    for first in range(len(ids)):
        for period in range(1, (len(ids) - first) // 3 + 1):
            once = ids[first : first + period]
            if once == ids[first + period : first + 2 * period] == ids[first + 2 * period : first + 3 * period]:
                return ids[: first + period]
    return ids


def without_echo(ids: Sequence[int], seconds: float, end: int) -> Sequence[int]:
    """A transcript that says the same twice, faster than anyone would, says it once; the last time counts.

    A sentence whose closing time was taken too early is heard again in what is left of the sound, perhaps in part.
    Ids from `end` on are no text.
    """
    places = [place for place, token in enumerate(ids) if token < end]
    if len(places) <= TWICE_PER_SECOND * seconds:
        return ids
    words = [ids[place] for place in places]
    for period in range(len(words) - TWICE_AT_LEAST, TWICE_AT_LEAST - 1, -1):
        first = len(words)
        while first > period and words[first - 1] == words[first - 1 - period]:
            first -= 1
        if len(words) - first >= max(TWICE_AT_LEAST, period // 2):
            return [*ids[: places[first - 1] + 1], *ids[places[-1] + 1 :]]
    return ids


def believable(ids: Sequence[int], seconds: float, end: int) -> Sequence[int]:
    """The transcript of so many seconds without what was heard again in the same sound."""
    return without_echo(without_loop(ids, seconds), seconds, end)


@dataclass(frozen=True, slots=True)
class Progress:
    """What the rules need to know of a transcript so far."""

    seconds: float = 30.0
    """Length of the audio."""
    stamps: bool = True
    """The prompt asks for times."""
    room: int = 448
    """Most tokens that the network has positions for."""
    count: int = 0
    """Tokens taken."""
    last: int = -1
    before: int = -1
    """The last token and the one before it, -1 for none."""
    stamp: int = -1
    """The latest time taken, as a token; -1 for none."""

    @property
    def limit(self) -> int:
        """Most tokens that audio of this length is given."""
        return min(self.room, believed(self.seconds))

    def take(self, token: int, ids: Ids) -> Progress:
        """Progress after one more token."""
        stamp = token if token >= ids.first_stamp else self.stamp
        return replace(self, count=self.count + 1, before=self.last, last=token, stamp=stamp)

    def ended(self, ids: Ids) -> bool:
        """The last token ends the transcript: the end token, a closing time at the audio's end, or the limit."""
        closing = self.last >= ids.first_stamp and -1 < self.before < ids.first_stamp
        at_end = (self.last - ids.first_stamp) * STAMP_SECONDS >= self.seconds - END_SLACK
        return self.last == ids.end or (closing and at_end) or self.count >= self.limit

    def value(self) -> tuple[float, bool, int, int, int, int, int]:
        """As a value that travels."""
        return (self.seconds, self.stamps, self.room, self.count, self.last, self.before, self.stamp)

    @staticmethod
    def of(value: Value) -> Progress:
        """The progress that `value` was made of. Raises ValueError for anything else."""
        match value:
            case [
                float() as seconds,
                bool() as stamps,
                int() as room,
                int() as count,
                int() as a,
                int() as b,
                int() as c,
            ]:
                return Progress(seconds, stamps, room, count, a, b, c)
        raise ValueError(f"not the state of a transcript: {value!r}")


class Rules:
    """The rules of one checkpoint, with its masks at hand."""

    def __init__(self, ids: Ids, vocab: int, device: torch.device) -> None:
        self.ids = ids
        self._always = torch.zeros(vocab, device=device)
        self._always[list(ids.suppress)] = -torch.inf
        self._begin = list(ids.begin_suppress)

    def apply(self, logits: Tensor, progress: Sequence[Progress]) -> Tensor:
        """logits [rows, vocab] → new logits, −inf where a row's progress forbids a token."""
        allowed = logits + self._always
        for row, so_far in zip(allowed, progress, strict=True):
            if so_far.count == 0:
                row[self._begin] = -torch.inf
            if so_far.stamps:
                self._times(row, so_far)
        return allowed

    def _times(self, row: Tensor, so_far: Progress) -> None:
        """Time rules on one row [vocab], in place."""
        ids, first = self.ids, self.ids.first_stamp
        row[ids.no_stamps] = -torch.inf
        after_stamp = so_far.last >= first
        opened = after_stamp and (so_far.before >= first or so_far.count < 2)
        if opened:
            row[first:] = -torch.inf
        elif after_stamp:
            row[: ids.end] = -torch.inf
        if so_far.stamp >= 0:
            row[first : so_far.stamp + (0 if after_stamp and not opened else 1)] = -torch.inf
        if so_far.count == 0:
            row[:first] = -torch.inf
            if ids.max_first_stamp is not None:
                row[first + ids.max_first_stamp + 1 :] = -torch.inf
        if torch.logsumexp(row[first:], 0) > row[:first].max():
            row[:first] = -torch.inf

    def silent(self, logits: Tensor) -> list[bool]:
        """logits [rows, vocab] right behind the start token, no rule applied → nobody speaks in that row's audio."""
        likely: list[float] = logits.softmax(-1)[:, self.ids.no_speech].tolist()
        return [probability > NO_SPEECH for probability in likely]
