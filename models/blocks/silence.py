"""A turn in which somebody was heard and nothing was said: a cough, a door."""

from __future__ import annotations

from models.blocks.values import record, text
from mstar.submodule import Call


def nothing_to_answer(call: Call) -> bool:
    """Of a prompt node: the input `transcript` has no words, and the setting `answer_silence` does not ask for more.

    Such a node puts out nothing and stops its partition, so that no language model runs for a noise.
    """
    heard = call.inputs.get("transcript")
    return heard is not None and not text(record(heard)["text"]).strip() and not call.settings.get("answer_silence")
