"""Items that a client puts into the conversation."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import UNSET

from models.registry import Conversation as Offer
from server.audio import whole
from server.events.items import Content, Item
from server.events.session import AudioFormat
from server.session.log import Entry, Sound, Speech
from server.session.outbox import Ids


def entry_of(given: Item, param: str, audio_format: AudioFormat, new_id: Ids, offer: Offer) -> Entry:
    """A checked item as an entry of the log; sound is decoded and cut into the family's items.

    Raises Rejected for half a sample.
    """
    sound: Sound | None = None
    parts: list[Content] = []
    for index, part in enumerate(given.parts):
        if part.type == "input_audio":
            if part.audio and not part.transcript:
                pcm = whole(part.audio, audio_format, offer.mic_rate, f"{param}.content[{index}].audio")
                rows = np.pad(pcm, (0, -pcm.size % offer.mic_item)).reshape(-1, offer.mic_item)
                sound = Sound(rows, pcm.size / offer.mic_rate)
            parts.append(Content("input_audio", transcript=part.transcript or None))
        elif part.type == "text":
            parts.append(Content("output_text", text=part.text))
        else:
            parts.append(msgspec.structs.replace(part, audio=UNSET))
    speech = None
    if any(part.type == "output_audio" for part in parts):
        speech = Speech(offer.speech_rate)
    item = msgspec.structs.replace(
        given,
        id=given.id or new_id("item"),
        object="realtime.item",
        status="completed",
        content=tuple(parts) if given.type == "message" else UNSET,
    )
    if item.type == "function_call" and not item.call_id:
        item = msgspec.structs.replace(item, call_id=new_id("call"))
    return Entry(item, sound=sound, speech=speech)
