"""The items of a conversation: what clients put in, look at, cut and take out, and what the user said."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import UNSET

from media.frames import PcmF
from models.registry import Conversation as Offer
from mstar.errors import Rejected
from server.events.client import ConversationItemCreate, ConversationItemTruncate
from server.events.items import check_item
from server.events.server import (
    ConversationItemAdded,
    ConversationItemDeleted,
    ConversationItemDone,
    ConversationItemRetrieved,
    ConversationItemTruncated,
    InputAudioBufferCommitted,
)
from server.events.session import Audio, AudioFormat
from server.session.items import entry_of
from server.session.log import Entry, Log, Sound, truncate, user_audio
from server.session.options import Options
from server.session.outbox import Outbox
from server.session.recordings import Recordings
from server.session.transcripts import Transcripts


class Conversation:
    def __init__(
        self,
        out: Outbox,
        log: Log,
        transcripts: Transcripts,
        recordings: Recordings,
        offer: Offer,
        options: Options,
    ) -> None:
        self._out = out
        self._log = log
        self._transcripts = transcripts
        self._recordings = recordings
        self._offer = offer
        self._options = options

    def create(self, event: ConversationItemCreate, audio_format: AudioFormat) -> None:
        """Raises Rejected for an item that is wrong, a place that is not there, or the output of an unknown call."""
        check_item(event.item, "item")
        item = event.item
        if item.type == "function_call_output" and not self._log.has_call(str(item.call_id)):
            raise Rejected(
                f"Tool call ID '{item.call_id}' not found in conversation.",
                code="invalid_tool_call_id",
                param="item.call_id",
            )
        if len(self._log.entries) >= self._options.most_items:
            raise Rejected("The conversation holds too many items.", code="too_many_items", param="item")
        entry = entry_of(item, "item", audio_format, self._out.new_id, self._offer)
        self._add(entry, event.previous_item_id)
        if entry.sound is not None and isinstance(entry.sound.audio, np.ndarray):
            pcm = entry.sound.audio.reshape(-1)[: round(entry.sound.seconds * self._offer.mic_rate)]
            self._recordings.add(entry.id, self._offer.mic_rate, pcm)

    def retrieve(self, item_id: str, formats: Audio) -> None:
        """The item with its sound as far as that is known: of an answer what was sent, up to a truncation."""
        entry = self._log.get(item_id, code="item_retrieve_invalid_item_id")
        parts = list(entry.item.parts)
        for index, part in enumerate(parts):
            if part.type in ("input_audio", "output_audio"):
                sent = entry.speech.sent if entry.speech is not None else None
                wanted = formats.input.format if part.type == "input_audio" else formats.output.format
                audio = self._recordings.audio(item_id, wanted, sent)
                parts[index] = msgspec.structs.replace(part, audio=UNSET if audio is None else audio)
                break
        item = entry.item if not parts else msgspec.structs.replace(entry.item, content=tuple(parts))
        self._out.send(ConversationItemRetrieved(item=item))

    def delete(self, item_id: str, now: float) -> None:
        """An item that is still being said goes on, and is not in the conversation any more."""
        entry = self._log.get(item_id, code="item_delete_invalid_item_id")
        self._log.delete(item_id)
        self._recordings.forget(item_id)
        self._out.send(ConversationItemDeleted(item_id=item_id))
        self._transcripts.forget(entry, now)

    def truncate(self, event: ConversationItemTruncate) -> None:
        """The client says how much of an answer it played."""
        entry = self._log.get(event.item_id, code="item_truncate_invalid_item_id")
        end = truncate(entry, event.content_index, event.audio_end_ms, strict=self._options.strict_truncate)
        self._out.send(ConversationItemTruncated(item_id=entry.id, content_index=event.content_index, audio_end_ms=end))

    def commit(self, item_id: str, sound: Sound, pcm: PcmF | None) -> Entry:
        """What the user said becomes an item. `pcm`: its samples, where they are at hand."""
        self._out.send(InputAudioBufferCommitted(item_id=item_id, previous_item_id=self._log.last_id))
        entry = Entry(user_audio(item_id), sound=sound)
        self._add(entry, None)
        if pcm is not None:
            self._recordings.add(item_id, self._offer.mic_rate, pcm)
        return entry

    def _add(self, entry: Entry, after: str | None) -> None:
        previous = self._log.add(entry, after)
        self._out.send(ConversationItemAdded(item=entry.item, previous_item_id=previous))
        self._out.send(ConversationItemDone(item=entry.item, previous_item_id=previous))
