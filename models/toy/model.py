"""The toy family's Walk Graph (torch-free).

listen      mic ~> vad → speech
judge       turn(audio) → complete
transcribe  hear(audio) → transcript
recognise   recognise(sound written by the client) → heard, recognised
answer      [hear(audio) → transcript ~>] prompt → LM prefill; DynamicLoop LM decode ~token~> words
            ~word~> tone (one pass a word) ~frames~> vocoder → audio
speak       spell(written) ~word~> tone ~frames~> vocoder → audio: text that the client writes
roll        encode → Loop(predict ↺ latent; accumulated) → decode: diffusion- and rollout-shaped loops, nested
draw        sketch → (prompted | free) → Loop((prompted | free) → steer ↺ latent) → show: the branches of guidance, each
            with a K/V cache of its own
draw_packed sketch → guided → Loop(guided ↺ latent) → show: the same, the branches as labels of one cache
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
    Loop,
    Parallel,
    Partition,
    Sequential,
    StreamingGraphEdge,
    Task,
    Walk,
)
from mstar.streaming.policies import FixedChunkPolicy, RampChunkPolicy
from mstar.tensors import Value

RATE = 24_000
FRAME = 240
"""Samples a frame of the toy vocoder: 10 ms."""
WORD_FRAMES = 25
SPEECH_WINDOW = 2 * RATE
DRAWN_STEPS = 8
"""Steps from noise to what is drawn."""


def _components() -> tuple[Component, ...]:
    nodes = "models.toy.nodes"
    return (
        Component("vad", f"{nodes}.hearing:vad"),
        Component("turn", f"{nodes}.hearing:turn"),
        Component("hear", f"{nodes}.hearing:hear"),
        Component("recognise", f"{nodes}.hearing:recognise"),
        Component("prompt", f"{nodes}.talking:prompt"),
        Component("plain", f"{nodes}.talking:plain"),
        Component("LM", f"{nodes}.talking:lm", engine="kv"),
        Component("words", f"{nodes}.talking:words"),
        Component("spell", f"{nodes}.talking:spell"),
        Component("tone", f"{nodes}.sounding:tone"),
        Component("vocoder", f"{nodes}.sounding:vocoder"),
        Component("encode", f"{nodes}.rolling:encode"),
        Component("predict", f"{nodes}.rolling:predict"),
        Component("guide", f"{nodes}.rolling:guide"),
        Component("combine", f"{nodes}.rolling:combine"),
        Component("decode", f"{nodes}.rolling:decode"),
        Component("sketch", f"{nodes}.drawing:sketch"),
        Component("prompted", f"{nodes}.drawing:prompted", engine="kv"),
        Component("free", f"{nodes}.drawing:free", engine="kv"),
        Component("guided", f"{nodes}.drawing:guided", engine="kv"),
        Component("steer", f"{nodes}.drawing:steer"),
        Component("show", f"{nodes}.drawing:show"),
    )


def _hearing() -> tuple[Partition, ...]:
    return (
        Partition("ear", (Walk("listen", GraphNode("vad", ("mic",), (Emit("speech", "signal"),))),)),
        Partition("turns", (Walk("judge", GraphNode("turn", ("audio",), (Emit("complete", "signal"),))),)),
        Partition(
            "asr",
            (
                Walk(
                    "transcribe",
                    GraphNode(
                        "hear",
                        ("audio",),
                        (Emit("transcript", "text"), StreamingGraphEdge("transcript", "lm", "prompt")),
                    ),
                ),
            ),
        ),
        Partition(
            "sounds",
            (
                Walk(
                    "recognise",
                    GraphNode("recognise", ("sound",), (Emit("heard", "text"), Emit("recognised", "text"))),
                ),
            ),
        ),
    )


def _talking() -> tuple[Partition, ...]:
    token = StreamingGraphEdge("token", "words", "words")
    usage = Emit("usage", "signal")
    prefill = GraphNode("LM", ("tokens",), (Keep("token"), token, usage, Emit("begun", "signal")), prompt=True)
    decode = DynamicLoop(
        "answer", GraphNode("LM", ("token",), (GraphEdge("token", "LM"), token, usage)), max_iters=4096
    )

    def prompted(*inputs: str) -> Sequential:
        return Sequential((GraphNode("prompt", inputs, (GraphEdge("tokens", "LM"),)), prefill))

    raw = Sequential((GraphNode("plain", ("prompt",), (GraphEdge("tokens", "LM"),)), prefill))
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
            "words",
            (
                Walk(
                    "words",
                    GraphNode(
                        "words",
                        ("token",),
                        (
                            Emit("text", "text"),
                            Emit("call", "text"),
                            StreamingGraphEdge("word", "tone", "tone", bound=64),
                        ),
                    ),
                ),
            ),
        ),
    )


def _spelling() -> Partition:
    return Partition(
        "spelling",
        (Walk("read", GraphNode("spell", ("written",), (StreamingGraphEdge("word", "tone", "tone", bound=64),))),),
    )


def _sounding() -> tuple[Partition, ...]:
    frames = StreamingGraphEdge(
        "frames", "vocoder", "vocoder", RampChunkPolicy(first=5, growth=2, k=40, c=2), items="rows", bound=400
    )
    return (
        Partition("tone", (Walk("tone", GraphNode("tone", ("word",), (Emit("alignment", "signal"), frames))),)),
        Partition(
            "vocoder",
            (Walk("vocoder", GraphNode("vocoder", ("frames",), (Emit("audio", "audio", window=SPEECH_WINDOW),))),),
        ),
    )


def _rolling() -> tuple[Partition, ...]:
    """Nested loops, a parallel section, accumulated and last outputs."""
    inner = Loop(
        "refine",
        Sequential(
            (
                Parallel(
                    (
                        GraphNode("predict", ("latent", "context"), (GraphEdge("main", "combine"),)),
                        GraphNode("guide", ("latent",), (GraphEdge("other", "combine"),)),
                    )
                ),
                GraphNode("combine", ("main", "other"), (GraphEdge("latent", "predict"), GraphEdge("latent", "guide"))),
            )
        ),
        max_iters=3,
        outputs=(GraphEdge("latent", "encode", "state"),),
    )
    return (
        Partition(
            "world",
            (
                Walk(
                    "roll",
                    Sequential(
                        (
                            DynamicLoop(
                                "horizon",
                                Sequential(
                                    (
                                        GraphNode(
                                            "encode",
                                            ("state",),
                                            (
                                                GraphEdge("latent", "predict"),
                                                GraphEdge("latent", "guide"),
                                                GraphEdge("context", "predict"),
                                                Emit("imagined", "signal"),
                                            ),
                                        ),
                                        inner,
                                    )
                                ),
                                max_iters=8,
                                outputs=(GraphEdge("latent", "decode"),),
                                accumulated=(GraphEdge("imagined", "decode", "path"),),
                            ),
                            GraphNode("decode", ("latent", "path"), (Emit("picture", "image"),)),
                        )
                    ),
                ),
            ),
        ),
    )


def _drawing() -> tuple[Partition, ...]:
    """Guidance: prompts are read into caches once, and a latent goes over them step by step."""
    words, nothing = GraphNode("prompted", ("words",), prompt=True), GraphNode("free", ("nothing",), prompt=True)
    spread = GraphNode(
        "sketch", ("prompt",), (GraphEdge("words", "prompted"), GraphEdge("nothing", "free"), Keep("latent"))
    )
    packed = GraphNode(
        "sketch", ("prompt",), (GraphEdge("words", "guided"), GraphEdge("nothing", "guided"), Keep("latent"))
    )
    branches = Parallel(
        (
            GraphNode("prompted", ("latent",), (GraphEdge("velocity", "steer", "towards"),)),
            GraphNode("free", ("latent",), (GraphEdge("velocity", "steer", "away"),)),
        )
    )
    onward = tuple(GraphEdge("latent", to) for to in ("prompted", "free", "steer"))
    steps = Sequential((branches, GraphNode("steer", ("latent", "towards", "away"), onward)))
    together = GraphNode("guided", ("latent",), (GraphEdge("latent", "guided"),))
    shown, to_show = GraphNode("show", ("latent",), (Emit("drawn", "image"),)), (GraphEdge("latent", "show"),)
    return (
        Partition(
            "canvas",
            (
                Walk("read", Sequential((spread, Parallel((words, nothing)))), then="draw"),
                Walk("draw", Sequential((Loop("steps", steps, DRAWN_STEPS, outputs=to_show), shown))),
                Walk(
                    "read_packed",
                    Sequential((packed, GraphNode("guided", ("words", "nothing"), prompt=True))),
                    then="draw_packed",
                ),
                Walk("draw_packed", Sequential((Loop("steps", together, DRAWN_STEPS, outputs=to_show), shown))),
            ),
        ),
    )


CONVERSATION = Conversation(speech_rate=RATE, warm="warm", complete="complete", forces_calls=True)


class Toy:
    """The family; it has no settings."""

    card = Card(
        "toy",
        CONVERSATION,
        Speech(RATE, CONVERSATION.voices, say="speak", speeds=(1.0, 1.0)),
        recognition=Recognition(),
    )
    settings = ()

    def graph(self, _: Mapping[str, Value]) -> Graph:
        """The Walk Graph."""
        spoken = {"lm": "prefill", "words": "words", "tone": "tone", "vocoder": "vocoder"}
        written = {"lm": "prefill", "words": "words"}
        heard = {"asr": "transcribe", "lm": "prefill_heard"}
        plain, with_audio = ("history", "tools"), ("history", "tools", "audio")
        return Graph(
            name="toy",
            components=_components(),
            partitions=(*_hearing(), *_talking(), _spelling(), *_sounding(), *_rolling(), *_drawing()),
            live=(
                LiveInput(
                    "mic",
                    edges=(StreamingGraphEdge("mic", "ear", "vad", FixedChunkPolicy(1)),),
                    slices=("turn", "hear"),
                    full="wait",
                    history=CONVERSATION.mic_history,
                ),
                LiveInput(
                    "word", edges=(StreamingGraphEdge("word", "tone", "tone", bound=64),), scope="request", full="wait"
                ),
                LiveInput(
                    "sound",
                    edges=(StreamingGraphEdge("sound", "sounds", "recognise", bound=8),),
                    scope="request",
                    full="wait",
                ),
                LiveInput(
                    "written", edges=(StreamingGraphEdge("written", "spelling", "spell"),), scope="request", full="wait"
                ),
            ),
            tasks=(
                Task("listen", {"ear": "listen"}, standing=True),
                Task("judge", {"turns": "judge"}, ("audio",)),
                Task("warm", {"lm": "warm"}, plain),
                Task("transcribe", {"asr": "transcribe"}, ("audio",)),
                Task("recognise", {"sounds": "recognise"}),
                Task("complete", {**written, "lm": "complete"}, ("prompt",)),
                Task("answer_speech", spoken, plain),
                Task("answer_text", written, plain),
                Task("answer_audio_speech", {**spoken, **heard}, with_audio),
                Task("answer_audio_text", {**written, **heard}, with_audio),
                Task("say", {"tone": "tone", "vocoder": "vocoder"}),
                Task("speak", {"spelling": "read", "tone": "tone", "vocoder": "vocoder"}),
                Task("roll", {"world": "roll"}, ("state",)),
                Task("draw", {"canvas": "read"}, ("prompt",)),
                Task("draw_packed", {"canvas": "read_packed"}, ("prompt",)),
            ),
        )


FAMILY = Toy()
