"""A language model that speaks, with small random weights: its codec beside it or on a rank apart, and in batches.

A CPU decodes sounds one by one, so that their bits depend on no other; what that costs is measured here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from models.orpheus import tiny
from models.orpheus.model import SPEECH
from models.orpheus.tokens import FRAME, levels
from models.snac.codec import Carried, Snac
from models.snac.config import SnacConfig
from models.snac.noise import SeededNoise
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
SOUNDS = 16
FRAMES = 60
TOLERANCE = 1e-3


def run(*, quick: bool) -> Row:
    """Three rounds with each number of streams, one if quick; ten rounds of the codec, two if quick."""
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
    """The codec's time for a second of each of 16 sounds; RuntimeError if they differ by more than rounding."""
    torch.set_num_threads(1)
    for name, snac, frames in (("codec", tiny.codec(), FRAMES), ("published_codec", _published(), FRAMES // 20)):
        drawn = np.random.default_rng(0).integers(0, snac.config.codebook, (SOUNDS, frames * FRAME))
        codes = [torch.from_numpy(level) for level in levels(drawn)]
        batched: list[float] = []
        alone: list[float] = []
        for turn in range(rounds + 1):
            seconds, together = _decoded(snac, snac.together, codes, frames)
            alone_seconds, apart = _decoded(snac, snac.push, codes, frames)
            if float((together - apart).abs().max()) > TOLERANCE:
                raise RuntimeError("a batch of the codec sounds unlike its members alone")
            if turn:  # the first is for warming up
                batched.append(seconds)
                alone.append(alone_seconds)
        yield Metric(f"{name}.batch_of_16", "s/s", tuple(batched))
        yield Metric(f"{name}.one_by_one", "s/s", tuple(alone))
        yield Metric(f"{name}.one_by_one/batch", "ratio", tuple(b / a for a, b in zip(batched, alone, strict=True)))


def _published() -> Snac:
    """A codec of the published shape."""
    shape = SnacConfig(24_000, 768, 1024, (8, 8, 4, 2), 4096, 8, (4, 2, 1), noise=True, depthwise=True)
    return Snac(shape, tiny.CodecWeights({}, "random"))


def _decoded(
    snac: Snac, push: Callable[..., tuple[Tensor, list[Carried]]], codes: Sequence[Tensor], frames: int
) -> tuple[float, Tensor]:
    """Sounds frame by frame → seconds for a second of sound, and their samples [sounds, n]."""
    carried = [snac.begin() for _ in range(SOUNDS)]
    noise = [SeededNoise(place) for place in range(SOUNDS)]
    pieces: list[Tensor] = []
    began = time.perf_counter()
    for at in range(frames):
        chunk = [level[:, at * n : (at + 1) * n] for level, n in zip(codes, (1, 2, 4), strict=True)]
        sound, carried = push(chunk, carried, last=at == frames - 1, noise=noise)
        pieces.append(sound)
    taken = time.perf_counter() - began
    whole = torch.cat(pieces, dim=1)
    return taken / (whole.numel() / snac.config.rate), whole
