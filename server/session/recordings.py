"""Sound of the conversation's items, kept for a while for clients that ask for an item again."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from media.frames import Pcm16, PcmF, to_float, to_int16
from server.audio import Outgoing
from server.events.session import AudioFormat

LONGEST_SECONDS = 8
"""Of sound in one event: half of the 1 MiB that stock clients take, and some 20 ms of work."""
MOST_BYTES = 1024 * 1024
"""Of 16 bit samples a session keeps: some 24 s at 22 kHz. Beyond, the oldest items' sound is dropped."""


@dataclass(slots=True)
class _Recording:
    rate: int
    samples: int = 0  # of the whole item; the first LONGEST_SECONDS of them are kept
    parts: list[Pcm16] = field(default_factory=list)
    size: int = 0  # bytes kept
    dropped: bool = False


class Recordings:
    """By item. Sound that was dropped stays away."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.held = 0
        """Bytes."""
        self._most = most_bytes
        self._items: dict[str, _Recording] = {}

    def add(self, item_id: str, rate: int, pcm: PcmF) -> None:
        """More sound of an item, float32 [n] at `rate` Hz."""
        kept = self._items.setdefault(item_id, _Recording(rate))
        room = max(0, LONGEST_SECONDS * rate - kept.samples)
        kept.samples += pcm.size
        if kept.dropped or not room:
            return
        part = to_int16(pcm[:room])
        kept.parts.append(part)
        kept.size += part.nbytes
        self.held += part.nbytes
        for oldest in self._items.values():
            if self.held <= self._most:
                return
            self._drop(oldest)

    def audio(self, item_id: str, wanted: AudioFormat, samples: int | None = None) -> bytes | None:
        """An item's sound, or its first `samples`, in a format of the API; None if that is not at hand or too long."""
        kept = self._items.get(item_id)
        if kept is None or kept.dropped:
            return None
        samples = kept.samples if samples is None else min(samples, kept.samples)
        if samples > LONGEST_SECONDS * kept.rate:
            return None
        return Outgoing(kept.rate, wanted).feed(to_float(np.concatenate(kept.parts)[:samples]), last=True)

    def forget(self, item_id: str) -> None:
        """The item is not in the conversation any more."""
        kept = self._items.pop(item_id, None)
        if kept is not None:
            self.held -= kept.size

    def _drop(self, kept: _Recording) -> None:
        self.held -= kept.size
        kept.parts, kept.size, kept.dropped = [], 0, True
