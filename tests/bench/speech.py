"""The voice's speech partitions as a family of their own: text in, sound out (torch-free)."""

from __future__ import annotations

from collections.abc import Mapping

from models.voice.model import FAMILY as VOICE
from mstar.graph.declare import Graph, LiveInput, StreamingGraphEdge, Task
from mstar.tensors import Value

START = {"clauses": "clauses", "synthesis": "speak", "flow": "flow", "vocoder": "sound"}
"""Partitions that speak, and the walk each begins with."""
COMPONENTS = ("clauses", "phonemes", "acoustic", "flow", "decoder")


class Speech:
    """Task `speak` takes the request's live stream `written`, pieces of text."""

    def graph(self, settings: Mapping[str, Value]) -> Graph:
        whole = VOICE.graph(settings)
        written = StreamingGraphEdge("written", "clauses", "clauses", input="text")
        return Graph(
            name="speech",
            components=tuple(each for each in whole.components if each.name in COMPONENTS),
            partitions=tuple(each for each in whole.partitions if each.name in START),
            live=(LiveInput("written", edges=(written,), scope="request", full="wait"),),
            tasks=(Task("speak", START),),
        )


FAMILY = Speech()
