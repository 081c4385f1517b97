"""A language model that speaks, with small random weights: its codec beside it or on a rank apart, and in batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from models.orpheus import tiny
from models.orpheus.model import SPEECH
from models.orpheus.nodes.sounding import CodecSubmodule
from models.orpheus.tokens import FRAME
from mstar.submodule import STATE, Call, Span, Step
from tests.bench.report import Metric, Row, Sample
from tests.bench.serving import ROOT, served
from tests.bench.speaking import Load, closed, stream

STREAMS = (1, 4, 8, 16)
PLACEMENTS = {"one": "placement.yaml", "split": "placement-split.yaml"}
"""Language model and codec in one process, and in two."""
TEXTS = (
    "It was late. The last train had gone, and nobody was on the platform. She sat down to wait.",
    "Bread is old. People baked it long before they could write. Some of it was found in a tomb.",
    "The sea was calm. A small boat came in with the evening light. Three men were singing in it.",
)
FRAMES = 60
TOLERANCE = 1e-3


def run(*, quick: bool) -> Row:
    """Three rounds with each number of streams, one if quick; ten batches, two if quick."""
    loads: dict[tuple[str, int], Load] = {}
    for name, file in PLACEMENTS.items():
        with served("--tiny", "--placement", str(ROOT / "models" / "orpheus" / file), family="orpheus") as server:
            speak = stream(server.url, "orpheus", SPEECH.rate)
            asyncio.run(closed(speak, TEXTS, 1, 1))  # warm
            for streams in STREAMS:
                loads[name, streams] = asyncio.run(closed(speak, TEXTS, streams, 1 if quick else 3))
    samples: list[Sample] = [
        {"placement": name, "streams": streams, **sample}
        for (name, streams), load in loads.items()
        for sample in load.samples
    ]
    codec = _codec(2 if quick else 10)
    return Row("orpheus", (*_metrics(loads), *codec), tuple(samples))


def _metrics(loads: dict[tuple[str, int], Load]) -> Iterator[Metric]:
    for (name, streams), load in loads.items():
        for what, unit in (("first_audible_ms", "ms"), ("rtf", "s/s")):
            yield Metric(f"{streams}.{what}.{name}", unit, tuple(float(each[what]) for each in load.samples))
        yield Metric(f"{streams}.throughput.{name}", "s/s", (load.throughput,))
        yield Metric(f"{streams}.refused.{name}", "texts", (float(load.refused),))
    for streams in STREAMS:
        ratio = loads["split", streams].throughput / loads["one", streams].throughput
        yield Metric(f"{streams}.throughput.split/one", "ratio", (ratio,))


def _codec(rounds: int) -> Iterator[Metric]:
    """The codec's time for a second of sound, 16 sounds at once and one by one; raises RuntimeError if they differ."""
    torch.set_num_threads(1)
    node = CodecSubmodule(tiny.codec())
    codes = np.random.default_rng(0).integers(0, tiny.CODEBOOK, (node.max_batch, FRAMES * FRAME))
    batched: list[float] = []
    alone: list[float] = []
    for turn in range(rounds + 1):
        seconds, together = _decoded(node, codes, node.max_batch)
        alone_seconds, apart = _decoded(node, codes, 1)
        if max(np.abs(a - b).max() for a, b in zip(together, apart, strict=True)) > TOLERANCE:
            raise RuntimeError("a batch of the codec sounds unlike its members alone")
        if turn:  # the first is for warming up
            batched.append(seconds)
            alone.append(alone_seconds)
    yield Metric("codec.batch_of_16", "s/s", tuple(batched))
    yield Metric("codec.one_by_one", "s/s", tuple(alone))
    yield Metric("codec.one_by_one/batch", "ratio", tuple(b / a for a, b in zip(batched, alone, strict=True)))


def _decoded(node: CodecSubmodule, codes: np.ndarray, size: int) -> tuple[float, list[np.ndarray]]:
    """Sounds frame by frame, `size` of them a step → seconds for a second of sound, and their samples."""
    rows = len(codes)
    states: list[object] = [None] * rows
    sounds: list[list[np.ndarray]] = [[] for _ in range(rows)]
    began = time.perf_counter()
    for at in range(0, FRAMES * FRAME, FRAME):
        for first in range(0, rows, size):
            places = range(first, first + size)
            calls = [_call(place, codes[place], at, states[place]) for place in places]
            outputs = node.forward(node.collate(calls), Step(calls))
            for place, audio, state in zip(places, *_columns(outputs), strict=True):
                states[place] = state
                if audio is not None:
                    sounds[place].append(audio["pcm"])
    taken = time.perf_counter() - began
    whole = [np.concatenate(pieces) for pieces in sounds]
    return taken / (sum(map(len, whole)) / SPEECH.rate), whole


def _call(place: int, codes: np.ndarray, at: int, state: object) -> Call:
    span = Span("code", at, 0, FRAME, segment_final=at + FRAME == FRAMES * FRAME)
    chunk = tuple(int(each) for each in codes[at : at + FRAME])
    return Call(str(place), "sound", {"code": chunk}, {}, {"code": span}, state, seed=place)  # type: ignore[arg-type]


def _columns(outputs: object) -> Sequence[Sequence[object]]:
    assert isinstance(outputs, dict)
    return outputs["audio"], outputs[STATE]
