"""What is played and what was heard: the buffer a paced track takes its frames from, and the account of it.

Positions are absolute samples of a response, at the rate of the track.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from media.frames import Pcm16, fade_out, milliseconds, ramp, silence

FADE_MS = 8.0
"""Fade when sound is cut off."""
EDGE_MS = 5.0
"""Fade where sound stops for want of data, or goes on in the middle."""
REPRIME_STEP_MS, REPRIME_MAX_MS = 5.0, 60.0
"""Each underrun of a response asks for this much more to be waiting before it goes on."""


@dataclass(frozen=True, slots=True)
class Span:
    """`count` samples of a response from `start` on."""

    response: str
    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count


@dataclass(frozen=True, slots=True)
class Chunk:
    """Sound of a response: int16 [n] from sample `start` on."""

    response: str
    start: int
    pcm: Pcm16


@dataclass(frozen=True, slots=True)
class Taken:
    """A frame for the track: int16 [n], and which of its samples are whose. Silence and fades belong to no span."""

    pcm: Pcm16
    spans: tuple[Span, ...]


class PlayoutBuffer:
    """Bounded queue of responses' sound, taken frame by frame; silence where there is none.

    Playing begins when a frame and `prime_ms` are there (or the response is complete), and after an underrun when
    `reprime_ms` (growing to 60) are. `capacity` in samples.
    """

    def __init__(self, rate: int, capacity: int, *, prime_ms: float = 0.0, reprime_ms: float = 40.0) -> None:
        longest = milliseconds(max(prime_ms, reprime_ms, REPRIME_MAX_MS), rate)
        if capacity < longest:
            raise ValueError(f"capacity must be at least {longest} samples, not {capacity}")
        self.rate = rate
        self.capacity = capacity
        self.underruns = 0
        """Times a response ran dry before its end."""
        self.silent = 0
        """Samples of silence taken while nothing was to be played."""
        self.starved = 0
        """Samples of silence taken inside a response (underrun until re-primed)."""
        self._prime_ms = prime_ms
        self._reprime_ms = reprime_ms
        self._queue: deque[Chunk] = deque()
        self._offset = 0  # samples of the first chunk that are taken
        self._queued = 0
        self._open: str | None = None  # the response that more sound is expected of
        self._playing = False
        self._dry = 0  # underruns of the open response
        self._starving = False
        self._tail: Pcm16 = silence(0)  # fade that is still to be played, of no response
        self._rise = 0  # samples that still rise from silence
        self._last = 0  # newest sample given out

    @property
    def free(self) -> int:
        """Samples that `put` would accept: the credit of the producer."""
        return self.capacity - self._queued

    @property
    def queued(self) -> int:
        """Samples waiting."""
        return self._queued

    def put(self, response: str, start: int, pcm: Pcm16) -> int:
        """Queue int16 [n] → how many of its first samples were accepted (`free` at most; the caller keeps the rest).

        ValueError if the chunk does not join what is queued of the same response.
        """
        if pcm.dtype != np.int16 or pcm.ndim != 1:
            raise ValueError(f"pcm must be int16 [n], not {pcm.dtype} {list(pcm.shape)}")
        if self._queue and self._queue[-1].response == response:
            expected = self._queue[-1].start + self._queue[-1].pcm.size
            if start != expected:
                raise ValueError(f"start of response {response} must be {expected}, not {start}")
        accepted = min(pcm.size, self.free)
        if accepted:
            self._queue.append(Chunk(response, start, pcm[:accepted].copy()))
            self._queued += accepted
        if self._open != response:
            self._open = response
            self._dry = 0
            self._starving = False
        return accepted

    def end(self, response: str) -> None:
        """All sound of the response is queued: running dry is its end, no underrun."""
        if self._open == response:
            self._open = None
            self._starving = False

    def take(self, samples: int) -> Taken:
        """The next frame, int16 [samples]. Never waits."""
        out = silence(samples)
        filled = self._play_tail(out, 0)
        if not self._playing and filled < samples and self._primed(samples):
            self._begin()
        spans: list[Span] = []
        if self._playing:
            filled = self._play_queue(out, filled, spans)
            if filled < samples:
                self._stop()
                self._play_tail(out, filled)
        missing = samples - sum(span.count for span in spans)
        if self._starving:
            self.starved += missing
        else:
            self.silent += missing
        if samples:
            self._last = int(out[-1])
        return Taken(out, tuple(spans))

    def clear(self) -> Sequence[Chunk]:
        """Cut off: the next 8 ms fade out (counted as nobody's), the rest is dropped → what was not played, in order.

        Its first chunk starts at the first sample that no `take` gave out, so that it can be `put` back.
        """
        dropped, self._queue = self._queue, deque()
        if dropped and self._offset:
            first = dropped.popleft()
            dropped.appendleft(Chunk(first.response, first.start + self._offset, first.pcm[self._offset :]))
        if self._playing:
            self._tail = self._faded(dropped)
        self._offset = self._queued = self._dry = self._rise = 0
        self._open = None
        self._playing = self._starving = False
        return dropped

    def _primed(self, frame: int) -> bool:
        if not self._queued:
            return False
        if self._open is None or self._queue[0].response != self._open or not self.free:
            return True
        wanted = self._prime_ms
        if self._starving:
            wanted = min(self._reprime_ms + REPRIME_STEP_MS * (self._dry - 1), max(REPRIME_MAX_MS, self._reprime_ms))
        return self._queued >= max(milliseconds(wanted, self.rate), min(frame, self.capacity))

    def _begin(self) -> None:
        self._playing = True
        self._starving = False
        inside = self._queue[0].start + self._offset > 0
        self._rise = milliseconds(EDGE_MS, self.rate) if inside else 0

    def _stop(self) -> None:
        """The queue ran dry: let the wave fall from where it stands to zero."""
        self._playing = False
        if self._open is not None:
            self._starving = True
            self._dry += 1
            self.underruns += 1
        self._tail = self._fall(milliseconds(EDGE_MS, self.rate))

    def _fall(self, samples: int) -> Pcm16:
        """From the newest sample's value down to zero [samples]."""
        return np.rint(self._last * (1 - ramp(samples))).astype(np.int16)

    def _faded(self, chunks: Iterable[Chunk]) -> Pcm16:
        wanted = milliseconds(FADE_MS, self.rate)
        parts: list[Pcm16] = []
        for chunk in chunks:
            parts.append(chunk.pcm[:wanted])
            wanted -= parts[-1].size
            if not wanted:
                break
        if not parts:
            return self._fall(wanted)
        joined = np.concatenate(parts)
        return fade_out(joined, joined.size)

    def _play_tail(self, out: Pcm16, at: int) -> int:
        count = min(self._tail.size, out.size - at)
        out[at : at + count] = self._tail[:count]
        self._tail = self._tail[count:]
        return at + count

    def _play_queue(self, out: Pcm16, at: int, spans: list[Span]) -> int:
        first = at
        while at < out.size and self._queue:
            chunk = self._queue[0]
            count = min(chunk.pcm.size - self._offset, out.size - at)
            out[at : at + count] = chunk.pcm[self._offset : self._offset + count]
            self._note(spans, Span(chunk.response, chunk.start + self._offset, count))
            at += count
            self._offset += count
            self._queued -= count
            if self._offset == chunk.pcm.size:
                self._queue.popleft()
                self._offset = 0
        if at > first:
            self._lift(out[first:at])
            self._last = int(out[at - 1])
        return at

    def _lift(self, played: Pcm16) -> None:
        """Apply what is left of the rise to the samples just played, in place."""
        if self._rise:
            gains = ramp(milliseconds(EDGE_MS, self.rate))[-self._rise :][: played.size]
            played[: gains.size] = np.rint(played[: gains.size] * gains).astype(np.int16)
            self._rise -= gains.size

    @staticmethod
    def _note(spans: list[Span], span: Span) -> None:
        if spans and spans[-1].response == span.response and spans[-1].end == span.start:
            spans[-1] = Span(span.response, spans[-1].start, spans[-1].count + span.count)
        else:
            spans.append(span)


@dataclass(frozen=True, slots=True)
class Started:
    """The first sample of a response was taken."""

    response: str


@dataclass(frozen=True, slots=True)
class Drained:
    """The last sample of a complete response was taken (or it had none)."""

    response: str


@dataclass(slots=True)
class _Account:
    heard: int = 0
    started: bool = False
    total: int | None = None
    closed: bool = False


class PlayoutLedger:
    """Which samples of which response were heard: only what a frame's spans name, never silence or fades."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def take(self, spans: Iterable[Span]) -> list[Started | Drained]:
        """Book a frame that goes out → what happened by it, in order."""
        events: list[Started | Drained] = []
        for span in spans:
            account = self._accounts.setdefault(span.response, _Account())
            if span.count and not account.started:
                account.started = True
                events.append(Started(span.response))
            account.heard = max(account.heard, span.end)
            events.extend(self._drained(span.response, account))
        return events

    def end(self, response: str, total: int) -> list[Started | Drained]:
        """The response is complete with `total` samples → Drained if all were heard already."""
        account = self._accounts.setdefault(response, _Account())
        account.total = total
        return list(self._drained(response, account))

    def cut(self, response: str) -> int:
        """The response was interrupted: no Drained will come → samples heard."""
        account = self._accounts.setdefault(response, _Account())
        account.closed = True
        return account.heard

    def heard(self, response: str) -> int:
        """Position after the last sample heard; 0 for an unknown response."""
        account = self._accounts.get(response)
        return account.heard if account else 0

    def playing(self, response: str) -> bool:
        """Started, and neither drained nor cut."""
        account = self._accounts.get(response)
        return account is not None and account.started and not account.closed

    def forget(self, response: str) -> None:
        """Drop the account (the response's item is final)."""
        self._accounts.pop(response, None)

    @staticmethod
    def _drained(response: str, account: _Account) -> Iterable[Drained]:
        if not account.closed and account.total is not None and account.heard >= account.total:
            account.closed = True
            yield Drained(response)
