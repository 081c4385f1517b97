"""Incoming RTP sound put right: packets in order without lasting latency, gaps in its time line filled.

A packet that is missing is waited for while `hold` later ones come in, never longer; then everything that waited goes
out at once, so that the latency after a loss is the latency before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from media.frames import Pcm16, fade_in, milliseconds, ramp, silence

HOLD = 2
RESTART, DROPOUT = 100, 3000
"""A packet this far behind or ahead is neither late nor after a loss: the sender numbers anew (RFC 3550, A.1)."""
MAX_FILL_MS = 200.0
REPEAT_MS = 20.0
EDGE_MS = 5.0


def signed_distance(value: int, reference: int, bits: int) -> int:
    """value - reference on a counter that wraps at 2**bits, as -2**(bits-1) … 2**(bits-1) - 1."""
    half = 1 << bits - 1
    return (value - reference + half) % (1 << bits) - half


@dataclass(slots=True)
class EncodedFrame:
    """What aiortc's decoder thread takes: payload and 32 bit RTP timestamp, replaced there by an unwrapped one."""

    data: bytes
    timestamp: int
    payload_type: int = 0


@dataclass(slots=True)
class LossCounts:
    """Packets since the start: given up, come too late, come twice."""

    lost: int = 0
    late: int = 0
    duplicate: int = 0


class ReorderBuffer:
    """Orders frames by their 16 bit sequence numbers; holds at most `hold` of them behind a missing one."""

    def __init__(self, hold: int = HOLD) -> None:
        if hold < 0:
            raise ValueError(f"hold must not be negative, not {hold}")
        self.hold = hold
        self.counts = LossCounts()
        self._next: int | None = None  # sequence number that is due
        self._source: int | None = None
        self._held: dict[int, EncodedFrame] = {}
        self._seen: dict[int, None] = {}  # newest sequence numbers given out, to tell a duplicate from a late one

    @property
    def held(self) -> int:
        """Frames waiting for a missing one."""
        return len(self._held)

    def add(self, sequence: int, frame: EncodedFrame, source: int = 0) -> list[EncodedFrame]:
        """A packet's frame and its synchronisation source → the frames that may be played now, in order."""
        if self._next is None or source != self._source:
            return self._restart(sequence, frame, source)
        distance = signed_distance(sequence, self._next, 16)
        if distance <= -RESTART or distance >= DROPOUT:
            return self._restart(sequence, frame, source)
        if distance < 0:
            if sequence in self._seen:
                self.counts.duplicate += 1
            else:
                self.counts.late += 1
            return []
        if sequence in self._held:
            self.counts.duplicate += 1
            return []
        self._held[sequence] = frame
        out = self._give_up(distance - self.hold) if distance > self.hold else []
        return out + self._contiguous()

    def flush(self) -> list[EncodedFrame]:
        """Everything held, in order (the stream pauses or ends)."""
        if not self._held or self._next is None:
            return []
        expected = self._next
        return self._give_up(1 + max(signed_distance(s, expected, 16) for s in self._held))

    def _restart(self, sequence: int, frame: EncodedFrame, source: int) -> list[EncodedFrame]:
        out = self.flush()
        self._seen.clear()
        self._next, self._source = sequence, source
        self._held[sequence] = frame
        return out + self._contiguous()

    def _give_up(self, count: int) -> list[EncodedFrame]:
        """Stop waiting for the next `count` sequence numbers; those of them that are there go out."""
        assert self._next is not None
        first = self._next
        there = sorted((d, s) for s in self._held if (d := signed_distance(s, first, 16)) < count)
        self.counts.lost += count - len(there)
        self._next = (first + count) % (1 << 16)
        return [self._take(s) for _, s in there]

    def _contiguous(self) -> list[EncodedFrame]:
        assert self._next is not None
        out = []
        while self._next in self._held:
            out.append(self._take(self._next))
            self._next = (self._next + 1) % (1 << 16)
        return out

    def _take(self, sequence: int) -> EncodedFrame:
        self._seen[sequence] = None
        if len(self._seen) > RESTART:
            del self._seen[next(iter(self._seen))]
        return self._held.pop(sequence)


class RtpPacket(Protocol):
    """What is read of aiortc's `RtpPacket`; its receiver has put the unpacked payload into the attribute `_data`."""

    @property
    def sequence_number(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def ssrc(self) -> int: ...
    @property
    def payload_type(self) -> int: ...


class PassThroughAudioBuffer:
    """Stands in for the audio jitter buffer of aiortc's receiver: `add(packet) → (send a PLI, frame or None)`.

    That interface hands on one frame per packet, but a packet that closes a hole frees several. The earlier ones go to
    `extra`, in order, before `add` returns the last: give it what puts a frame into the receiver's decoder queue.
    Without `extra` nothing is held and packets out of order are dropped as late.
    """

    def __init__(self, extra: Callable[[EncodedFrame], None] | None = None) -> None:
        self._extra = extra
        self._order = ReorderBuffer(0 if extra is None else HOLD)

    @property
    def counts(self) -> LossCounts:
        return self._order.counts

    def add(self, packet: RtpPacket) -> tuple[bool, EncodedFrame | None]:
        data: bytes = packet._data  # type: ignore[attr-defined]  # noqa: SLF001  set by the receiver, undeclared
        frame = EncodedFrame(data, packet.timestamp, packet.payload_type)
        # Packets without payload only keep the numbering.
        ready = [f for f in self._order.add(packet.sequence_number, frame, packet.ssrc) if f.data]
        if not ready:
            return False, None
        for earlier in ready[:-1]:
            assert self._extra is not None
            self._extra(earlier)
        return False, ready[-1]


@dataclass(frozen=True, slots=True)
class Filled:
    """Sound that continues the time line: `filled` made-up samples, then the real ones, in int16 [n].

    `muted` samples of the sender's time line were skipped before it (a gap too long to fill: DTX, mute, outage).
    """

    pcm: Pcm16
    filled: int = 0
    muted: int = 0


class GapFiller:
    """Decoded sound with timestamps → sound without holes.

    A hole of up to 200 ms is filled: the newest 20 ms backwards (no jump at the seam), fading out, then zeros. A longer
    one is reported as mute. Overlaps are cut. Timestamps count samples and may wrap at 32 bits.
    """

    def __init__(self, rate: int, *, max_fill_ms: float = MAX_FILL_MS) -> None:
        self.rate = rate
        self.filled = 0
        """Samples made up so far."""
        self.muted = 0
        """Samples skipped so far."""
        self.late = 0
        """Samples dropped so far because their time had passed."""
        self._max_fill = milliseconds(max_fill_ms, rate)
        self._repeat = milliseconds(REPEAT_MS, rate)
        self._expected: int | None = None
        self._newest: Pcm16 = silence(0)

    def feed(self, pts: int, pcm: Pcm16) -> Filled:
        """int16 [n] whose first sample stands at `pts` → what to play on."""
        if pcm.dtype != np.int16 or pcm.ndim != 1:
            raise ValueError(f"pcm must be int16 [n], not {pcm.dtype} {list(pcm.shape)}")
        gap = 0 if self._expected is None else signed_distance(pts, self._expected, 32)
        if gap < 0:
            if -gap <= self.rate:
                self.late += min(-gap, pcm.size)
                pcm = pcm[-gap:]
                return self._append(Filled(pcm), pts - gap)
            gap = 0  # more than a second back: the sender's clock began anew
        if gap > self._max_fill:
            self.muted += gap
            return self._append(Filled(fade_in(pcm, milliseconds(EDGE_MS, self.rate)), muted=gap), pts)
        if gap:
            self.filled += gap
            return self._append(Filled(np.concatenate((self._concealed(gap), pcm)), filled=gap), pts - gap)
        return self._append(Filled(pcm), pts)

    def _append(self, filled: Filled, pts: int) -> Filled:
        self._expected = pts + filled.pcm.size
        if filled.pcm.size:
            self._newest = np.concatenate((self._newest, filled.pcm))[-self._repeat :]
        return filled

    def _concealed(self, samples: int) -> Pcm16:
        out = silence(samples)
        mirrored = self._newest[::-1]
        faded = np.rint(mirrored * ramp(mirrored.size)[::-1]).astype(np.int16)[:samples]
        out[: faded.size] = faded
        return out
