"""The conversation as a list of items: what was said, and of sound what was heard. The truth that prompts come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from mstar.client import Slice
from mstar.errors import Rejected
from server.events.items import Content, Item
from server.session.alignment import Word, heard_text


@dataclass(frozen=True, slots=True)
class Sound:
    """A user's speech: items of the microphone, or samples of its own float32 [items, samples per item]."""

    audio: Slice | npt.NDArray[np.float32]
    seconds: float


@dataclass(slots=True)
class Speech:
    """What is known of an assistant's spoken item: samples given to the client at `rate`, and when each word sounds.

    Words are timed with the silence that the family cut from the beginning: `trimmed` samples, which are never given.
    """

    rate: int
    sent: int = 0
    trimmed: int = 0
    words: list[Word] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Entry:
    """An item with what is not shown of it. `sound` is kept until its transcript is known.

    Entries are told apart by what they are, not by their ids: a client names items, also outside of the conversation.
    """

    item: Item
    sound: Sound | None = None
    speech: Speech | None = None
    cut_ms: int | None = None  # truncated while still being spoken
    losses: int = 0  # workers that were lost while they dealt with its sound
    waits: int = 0  # times that no worker was ready to deal with it
    left_out: bool = False  # of prompts: the conversation has become longer than the model's context

    @property
    def id(self) -> str:
        return str(self.item.id)

    @property
    def text(self) -> str:
        return "".join(part.words for part in self.item.parts)

    @property
    def wordless(self) -> bool:
        """The user's sound, which is known to hold no words."""
        return bool(self.item.parts) and all(
            part.type == "input_audio" and part.transcript == "" for part in self.item.parts
        )

    def say(self, text: str) -> None:
        """Replace what the first sounding part says."""
        parts = list(self.item.parts)
        for index, part in enumerate(parts):
            if part.type in ("input_audio", "output_audio"):
                parts[index] = msgspec.structs.replace(part, transcript=text)
                self.item = msgspec.structs.replace(self.item, content=tuple(parts))
                return


def user_audio(item_id: str, transcript: str | None = None) -> Item:
    """A user's spoken item as it is shown."""
    return Item(
        "message", item_id, "realtime.item", "completed", "user", (Content("input_audio", transcript=transcript),)
    )


class Log:
    """Entries in order of the conversation."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._by_id: dict[str, Entry] = {}

    @property
    def entries(self) -> Sequence[Entry]:
        return self._entries

    @property
    def last(self) -> Entry | None:
        return self._entries[-1] if self._entries else None

    @property
    def last_id(self) -> str | None:
        return self._entries[-1].id if self._entries else None

    def find(self, item_id: str) -> Entry | None:
        return self._by_id.get(item_id)

    def get(self, item_id: str, param: str = "item_id", code: str = "invalid_value") -> Entry:
        """Raises Rejected for an id that is not in the conversation."""
        found = self.find(item_id)
        if found is None:
            raise Rejected(f"Item with item_id not found: {item_id}", code=code, param=param)
        return found

    def add(self, entry: Entry, after: str | None = None) -> str | None:
        """Put an entry at the end, or after another ("root" = at the beginning) → id of the one before it.

        Raises Rejected for an id that is taken or a place that is not there.
        """
        if self.find(entry.id) is not None:
            raise taken(entry.id)
        if after is None:
            at = len(self._entries)
        elif after == "root":
            at = 0
        else:
            at = self._entries.index(self.get(after, "previous_item_id")) + 1
        self._entries.insert(at, entry)
        self._by_id[entry.id] = entry
        return self._entries[at - 1].id if at else None

    def delete(self, item_id: str) -> None:
        self._entries.remove(self.get(item_id))
        del self._by_id[item_id]

    def has_call(self, call_id: str) -> bool:
        return any(entry.item.type == "function_call" and entry.item.call_id == call_id for entry in self._entries)

    @property
    def spoken(self) -> bool:
        """Whether the assistant has been heard."""
        return any(entry.speech is not None and entry.speech.sent > 0 for entry in self._entries)


def taken(item_id: str) -> Rejected:
    """What is said of a new item whose id is another one's."""
    return Rejected(f"Item with id already exists: {item_id}", code="item_already_exists", param="item.id")


def truncate(entry: Entry, content_index: int, end_ms: float, *, strict: bool) -> int:
    """Cut an assistant's spoken item to what was heard → the end that was taken, in ms.

    More than was sent is clamped to that (refused if `strict`): players count in frames. Raises Rejected for anything
    but an assistant's sound.
    """
    parts = entry.item.parts
    if entry.item.role != "assistant" or entry.speech is None:
        raise Rejected(
            "Only model output audio messages can be truncated.", code="unsupported_content_type", param="item_id"
        )
    if content_index >= len(parts) and content_index != 0:
        raise Rejected(f"There is no content {content_index}.", code="invalid_value", param="content_index")
    speech = entry.speech
    sent_ms = speech.sent * 1000 // speech.rate
    if end_ms > sent_ms and strict:
        raise Rejected(
            f"Audio content of {sent_ms}ms is already shorter than {end_ms:.0f}ms.",
            code="invalid_value",
            param="audio_end_ms",
        )
    if end_ms >= sent_ms and entry.item.status != "in_progress":
        return sent_ms
    end = min(int(end_ms), sent_ms)
    if entry.item.status == "in_progress":
        entry.cut_ms = end
    else:
        cut(entry, end * speech.rate // 1000)
    return end


def cut(entry: Entry, samples: int) -> None:
    """Keep of a spoken item what is heard in its first `samples`."""
    if entry.speech is None:
        return
    entry.say(heard_text(entry.text, entry.speech.words, samples + entry.speech.trimmed))
    entry.speech.sent = min(entry.speech.sent, samples)
