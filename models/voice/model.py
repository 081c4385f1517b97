"""The voice family's Walk Graph (torch-free).

    listen      mic ~> vad → speech                                              one firing a microphone item
    judge       turn(audio) → complete
    warm        prompt → LM: the K/V of a conversation before its next message is there
    say         text written by the client ~written~> clauses … decoder → audio; a cut: say what is written so far
    transcribe  cut(audio) ~piece~> loop over pieces: encoder → ASR_begin → loop ASR ↺ token → transcript
    recognise   divide(sound written by the client) ~piece~> as transcribe, with word times, ~tokens~> caption
    complete    LM; loop LM ↺ token on a text that the client writes, ~text_tokens~> text
    answer      [transcribe ~transcript~>] prompt → LM; loop LM ↺ token, ~text_tokens~> text
                text ~written~> clauses ~clause~> loop: phonemes → acoustic ~latents~> flow ~frames~> decoder → audio

The stages of an answer run at the same time, joined by streams: the decoder sounds the first clause while the language
model is still writing.
"""

from __future__ import annotations

from collections.abc import Mapping

from models.card import Card, Conversation, Recognition, Speech
from mstar.graph.declare import (
    Component,
    DynamicLoop,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    Keep,
    LiveInput,
    Partition,
    Sequential,
    StreamingGraphEdge,
    Task,
    Walk,
)
from mstar.streaming.policies import FixedChunkPolicy, RampChunkPolicy
from mstar.tensors import Value

CONVERSATION = Conversation(speech_rate=22_050, context=2048, warm="warm", complete="complete")
SPEECH_WINDOW = 2 * CONVERSATION.speech_rate
"""Samples of an answer that may be on their way to a listener who has not asked for more."""
LATENTS = 54
"""Latents of a chunk of the flow (0.6 s), which holds 33 back in the first of a clause: 21 frames come out of that."""
FIRST_FRAMES = 21
"""Frames of a clause's first chunk in the decoder: it holds 11 back, and speech begins within 7, so that it sounds."""
LONGEST_ANSWER = 4096
ASR_TOKENS = 448


def _spelling() -> tuple[GraphNode, DynamicLoop]:
    """A piece's tokens: the first, always a time; the loop over those behind it."""
    first = GraphNode(
        "ASR_begin",
        ("states", "seconds"),
        (GraphEdge("token", "ASR"), GraphEdge("token", "transcript", "first")),
        prompt=True,
        component="ASR",
    )
    loop = DynamicLoop(
        "spelling",
        GraphNode("ASR", ("token",), (GraphEdge("token", "ASR"),)),
        max_iters=ASR_TOKENS,
        accumulated=(GraphEdge("token", "transcript", "tokens"),),
    )
    return first, loop


def _heard(*behind: str) -> tuple[GraphEdge, ...]:
    """What the encoder gives to the recogniser; `behind`: what of it the node behind the recogniser needs."""
    return (
        GraphEdge("states", "ASR_begin"),
        GraphEdge("seconds", "ASR_begin"),
        *(GraphEdge(name, "transcript") for name in behind),
    )


def _hearing() -> tuple[Partition, ...]:
    piece = Sequential(
        (
            GraphNode("encoder", ("audio",), _heard("seconds")),
            *_spelling(),
            GraphNode("transcript", ("first", "tokens", "seconds"), (GraphEdge("transcript", ""),)),
        )
    )
    told = Sequential(
        (
            GraphNode("encoder", ("audio",), _heard("states", "seconds")),
            *_spelling(),
            GraphNode(
                "transcript",
                ("states", "first", "tokens", "seconds"),
                (
                    Emit("recognised", "text"),
                    StreamingGraphEdge("tokens", "captions", "caption", bound=ASR_TOKENS),
                ),
                component="told",
            ),
        )
    )
    transcript = (Emit("transcript", "text"), StreamingGraphEdge("transcript", "lm", "prompt"))
    cut = StreamingGraphEdge("piece", "asr", "encoder", input="audio", bound=4)
    return (
        Partition("ear", (Walk("listen", GraphNode("vad", ("audio",), (Emit("speech", "signal"),))),)),
        Partition("turns", (Walk("judge", GraphNode("turn", ("audio",), (Emit("complete", "signal"),))),)),
        Partition("pieces", (Walk("cut", GraphNode("cut", ("audio",), (cut,))),)),
        Partition("sounds", (Walk("divide", GraphNode("divide", ("audio",), (cut,))),)),
        Partition(
            "asr",
            (
                Walk("transcribe", DynamicLoop("pieces", piece, None, outputs=transcript)),
                Walk("recognise", DynamicLoop("pieces", told, None)),
            ),
        ),
        Partition("captions", (Walk("caption", GraphNode("caption", ("tokens",), (Emit("heard", "text"),))),)),
    )


def _talking() -> tuple[Partition, ...]:
    tokens = StreamingGraphEdge("text_tokens", "text", "text", bound=64)
    usage = Emit("usage", "signal")
    begin = GraphNode("LM", ("tokens",), (Keep("token"), tokens, usage, Emit("begun", "signal")), prompt=True)
    decode = DynamicLoop(
        "answer", GraphNode("LM", ("token",), (GraphEdge("token", "LM"), tokens, usage)), max_iters=LONGEST_ANSWER
    )

    def prompted(*inputs: str) -> Sequential:
        return Sequential((GraphNode("prompt", inputs, (GraphEdge("tokens", "LM"),)), begin))

    raw = Sequential((GraphNode("plain", ("prompt",), (GraphEdge("tokens", "LM"),)), begin))
    return (
        Partition(
            "lm",
            (
                Walk("complete", raw, then="decode"),
                Walk("prefill", prompted("history", "tools"), then="decode"),
                Walk("prefill_heard", prompted("history", "tools", "transcript"), then="decode"),
                Walk("warm", prompted("history", "tools")),
                Walk("decode", decode),
            ),
        ),
        Partition(
            "text",
            (
                Walk(
                    "read",
                    GraphNode(
                        "text",
                        ("text_tokens",),
                        (
                            Emit("text", "text"),
                            Emit("call", "text"),
                            StreamingGraphEdge("written", "clauses", "clauses", input="text"),
                        ),
                    ),
                ),
            ),
        ),
    )


def _speaking() -> tuple[Partition, ...]:
    latents = StreamingGraphEdge("latents", "flow", "flow", FixedChunkPolicy(LATENTS), items="rows", bound=1024)
    ramp = RampChunkPolicy(first=FIRST_FRAMES, growth=3, k=LATENTS)
    frames = StreamingGraphEdge("frames", "vocoder", "decoder", ramp, items="rows", bound=2 * LATENTS)
    clause = StreamingGraphEdge("clause", "synthesis", "phonemes", bound=4)
    return (
        Partition("clauses", (Walk("clauses", GraphNode("clauses", ("text",), (clause,))),)),
        Partition(
            "synthesis",
            (
                Walk(
                    "speak",
                    DynamicLoop(
                        "clauses",
                        Sequential(
                            (
                                GraphNode("phonemes", ("clause",), (GraphEdge("phonemes", "acoustic"),)),
                                GraphNode("acoustic", ("phonemes",), (Emit("alignment", "signal"), latents)),
                            )
                        ),
                        None,
                    ),
                ),
            ),
        ),
        Partition("flow", (Walk("flow", GraphNode("flow", ("latents",), (frames,))),)),
        Partition(
            "vocoder",
            (Walk("sound", GraphNode("decoder", ("frames",), (Emit("audio", "audio", window=SPEECH_WINDOW),))),),
        ),
    )


class Voice:
    """Settings: `llm` (checkpoint of the language model), `asr`, `voice`, `ear` (folders), absent ones are pulled;
    `llm_kernel` (see `models.llama.network.kernel_of`).
    """

    card = Card(
        "voice",
        CONVERSATION,
        Speech(CONVERSATION.speech_rate, CONVERSATION.voices),
        recognition=Recognition(prompts=True),
    )
    settings = ("llm", "llm_kernel", "asr", "voice", "ear")

    def graph(self, _: Mapping[str, Value]) -> Graph:
        """The Walk Graph."""
        parts = ("listening", "hearing", "talking", "speaking")
        listening, hearing, talking, speaking = (f"models.voice.nodes.{part}" for part in parts)
        asked = {"lm": "prefill", "text": "read"}
        heard = {"pieces": "cut", "asr": "transcribe"}
        asked_aloud = {**asked, **heard, "lm": "prefill_heard"}
        spoken = {"clauses": "clauses", "synthesis": "speak", "flow": "flow", "vocoder": "sound"}
        plain, with_audio = ("history", "tools"), ("history", "tools", "audio")
        return Graph(
            name="voice",
            components=(
                Component("vad", f"{listening}:vad", state="session"),
                Component("turn", f"{listening}:turn"),
                Component("cut", f"{hearing}:cut"),
                Component("encoder", f"{hearing}:encoder"),
                Component("ASR", f"{hearing}:asr", engine="kv"),
                Component("transcript", f"{hearing}:transcript"),
                Component("divide", f"{hearing}:divide"),
                Component("caption", f"{hearing}:caption"),
                Component("told", f"{hearing}:told"),
                Component("prompt", f"{talking}:prompt"),
                Component("plain", f"{talking}:plain"),
                Component("LM", f"{talking}:lm", engine="kv"),
                Component("text", f"{talking}:text"),
                Component("clauses", f"{speaking}:clauses"),
                Component("phonemes", f"{speaking}:phonemes"),
                Component("acoustic", f"{speaking}:acoustic"),
                Component("flow", f"{speaking}:flow"),
                Component("decoder", f"{speaking}:decoder"),
            ),
            partitions=(*_hearing(), *_talking(), *_speaking()),
            live=(
                LiveInput(
                    "mic",
                    edges=(StreamingGraphEdge("mic", "ear", "vad", bound=256, input="audio"),),
                    slices=("turn", "cut"),
                    full="wait",
                    history=CONVERSATION.mic_history,
                ),
                LiveInput(
                    "sound",
                    edges=(StreamingGraphEdge("sound", "sounds", "divide", bound=8, input="audio"),),
                    scope="request",
                    full="wait",
                ),
                LiveInput(
                    "written",
                    edges=(StreamingGraphEdge("written", "clauses", "clauses", input="text"),),
                    scope="request",
                    full="wait",
                ),
            ),
            tasks=(
                Task("listen", {"ear": "listen"}, standing=True),
                Task("judge", {"turns": "judge"}, ("audio",)),
                Task("warm", {"lm": "warm"}, plain),
                Task("transcribe", heard, ("audio",)),
                Task("recognise", {"sounds": "divide", "asr": "recognise", "captions": "caption"}),
                Task("say", spoken),
                Task("answer_speech", {**asked, **spoken}, plain),
                Task("complete", {**asked, "lm": "complete"}, ("prompt",)),
                Task("answer_text", asked, plain),
                Task("answer_audio_speech", {**asked_aloud, **spoken}, with_audio),
                Task("answer_audio_text", asked_aloud, with_audio),
            ),
        )


FAMILY = Voice()
