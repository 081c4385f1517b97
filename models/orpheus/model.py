"""Orpheus' Walk Graph (torch-free).

    say           text written by the client ~written~> sentences ~sentence~> loop over sentences:
                  prompt → LM_begin → loop LM ↺ token, ~code~> codec → audio
    say_windowed  the same, ~window_code~> windows → audio

The language model writes 7 tokens a frame of 2048 samples. `codec` carries the decoder's state from chunk to chunk and
gives out every sample; it sounds after 3 frames. `windows` is the published recipe: every 7 tokens it decodes the last
28 of the sentence and gives out the second frame of the four; the first frame and the last two are never heard.
"""

from __future__ import annotations

from collections.abc import Mapping

from models.card import Card, Speech
from models.orpheus.prompt import VOICES
from models.orpheus.tokens import FRAME
from mstar.graph.declare import (
    Component,
    DynamicLoop,
    Edge,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    LiveInput,
    Partition,
    Sequential,
    StreamingGraphEdge,
    Task,
    Walk,
)
from mstar.streaming.policies import FixedChunkPolicy, SlidingWindowChunkPolicy
from mstar.tensors import Value

SPEECH = Speech(rate=24_000, voices=VOICES, aligned=False, speeds=(1.0, 1.0))
LONGEST = 4096
"""Tokens of a sentence, at most."""
WINDOW = 4 * FRAME
"""Tokens that the published recipe decodes at once."""
SPEECH_WINDOW = 2 * SPEECH.rate
"""Samples that may be on their way to a listener who has not asked for more."""


def _speaking() -> tuple[Partition, ...]:
    token = GraphEdge("token", "LM")
    written: tuple[Edge, ...] = (
        StreamingGraphEdge("code", "codec", "codec", FixedChunkPolicy(FRAME)),
        StreamingGraphEdge("window_code", "windows", "windows", SlidingWindowChunkPolicy(WINDOW, FRAME)),
        Emit("usage", "signal"),
        token,
    )
    sentence = Sequential(
        (
            GraphNode("prompt", ("sentence",), (GraphEdge("tokens", "LM_begin"),)),
            GraphNode("LM_begin", ("tokens",), (token,), prompt=True, component="LM"),
            DynamicLoop("speech", GraphNode("LM", ("token",), written), LONGEST),
        )
    )
    return (
        Partition(
            "sentences",
            (
                Walk(
                    "read",
                    GraphNode("sentences", ("text",), (StreamingGraphEdge("sentence", "lm", "prompt", bound=8),)),
                ),
            ),
        ),
        Partition("lm", (Walk("speak", DynamicLoop("sentences", sentence, None)),)),
    )


def _sounding() -> tuple[Partition, ...]:
    audio = (Emit("audio", "audio", window=SPEECH_WINDOW),)
    return (
        Partition("codec", (Walk("sound", GraphNode("codec", ("code",), audio)),)),
        Partition("windows", (Walk("sound", GraphNode("windows", ("window_code",), audio)),)),
    )


class Orpheus:
    """Settings: `llm` and `snac` (folders of checkpoints), or `tiny`: small parts of random weights; `llm_kernel` (see
    `models.llama.network.kernel_of`).
    """

    card = Card("orpheus", speech=SPEECH)
    settings = ("llm", "snac", "tiny", "llm_kernel")

    def graph(self, _: Mapping[str, Value]) -> Graph:
        """The Walk Graph."""
        nodes = "models.orpheus.nodes"
        speaking = {"sentences": "read", "lm": "speak"}
        return Graph(
            name="orpheus",
            components=(
                Component("sentences", f"{nodes}.writing:sentences"),
                Component("prompt", f"{nodes}.writing:prompt"),
                Component("LM", f"{nodes}.speaking:lm", engine="kv"),
                Component("codec", f"{nodes}.sounding:codec"),
                Component("windows", f"{nodes}.sounding:windows"),
            ),
            partitions=(*_speaking(), *_sounding()),
            live=(
                LiveInput(
                    SPEECH.written,
                    edges=(StreamingGraphEdge(SPEECH.written, "sentences", "sentences", input="text"),),
                    scope="request",
                    full="wait",
                ),
            ),
            tasks=(
                Task(SPEECH.say, {**speaking, "codec": "sound"}),
                Task("say_windowed", {**speaking, "windows": "sound"}),
            ),
        )


FAMILY = Orpheus()
