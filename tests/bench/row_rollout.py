"""Frames imagined by appending each to a K/V cache, beside the published way: all frames so far anew at every step.

Widths are scaled to a small machine, sequences are the real ones: 256 patches, an action and a state a frame. Both ways
have the same weights; the published one is a plain forward pass under the block mask, without a cache to look after.
Times are those that one thread worked: other programs do not count.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import accumulate

import torch
from torch import Tensor

from models.vjepa2.config import Clip, Transformer, WorldConfig
from models.vjepa2.network import Encoder, centred
from models.vjepa2.nodes.imagining import ImaginingSubmodule
from models.vjepa2.weights import Drawn
from models.vjepa2.world import ActionPredictor, Frames
from models.worlds.training import BlockCausal, block_mask
from mstar.engine.api import Completed, Firing
from mstar.engine.kv_engine import KVCacheEngine
from mstar.tensors import Value
from tests.bench.report import Gate, Metric, Row, Sample

CONFIG = WorldConfig(
    clip=Clip(size=256, patch=16, tubelet=2, frames=64),
    encoder=Transformer(192, 4, 3, 768),
    predictor=Transformer(192, 2, 3, 768),
)
HORIZONS = (1, 4, 8, 15, 30)
GATES = {30: Gate("p50", 12.5, 17.4, better="more"), 8: Gate("p50", 4.0, better="more")}
TOLERANCE = 1e-3


def run(*, quick: bool) -> Row:
    """Three rounds of both ways in turn, one if quick; their frames compared."""
    torch.set_num_threads(1)
    weights = Drawn(4)
    world = _World(ActionPredictor(weights, CONFIG))
    encoder = Encoder(weights, CONFIG.clip, CONFIG.encoder, normalised=True)
    world.cached(1)
    samples: list[Sample] = []
    for _ in range(1 if quick else 3):
        began = time.process_time()
        with torch.inference_mode():
            encoder(torch.zeros(1, 1, 3, 256, 256))
        encode = time.process_time() - began
        cached, ours = world.cached(HORIZONS[-1])
        anew, theirs = world.anew(HORIZONS[-1])
        if (off := float((ours - theirs).abs().max())) > TOLERANCE:
            raise RuntimeError(f"the two ways imagine other frames: {off:.1e} apart")
        samples.append(
            {"encode_ms": encode * 1e3, "apart": off}
            | {f"cached_{h}_ms": cached[h - 1] * 1e3 for h in HORIZONS}
            | {f"anew_{h}_ms": anew[h - 1] * 1e3 for h in HORIZONS}
        )
    return Row("rollout", (*_metrics(samples),), tuple(samples), notes=(_note(samples),))


def _metrics(samples: list[Sample]) -> list[Metric]:
    def values(name: str) -> tuple[float, ...]:
        return tuple(float(each[name]) for each in samples)

    metrics = [Metric("encode", "ms", values("encode_ms"))]
    for horizon in HORIZONS:
        cached, anew = values(f"cached_{horizon}_ms"), values(f"anew_{horizon}_ms")
        ratios = tuple(slow / fast for slow, fast in zip(anew, cached, strict=True))
        metrics += [
            Metric(f"cached_{horizon}", "ms", cached),
            Metric(f"anew_{horizon}", "ms", anew),
            Metric(f"ratio_{horizon}", "×", ratios, GATES.get(horizon)),
            Metric(f"flops_{horizon}", "×", (_flops_anew(horizon) / _flops_cached(horizon),)),
        ]
    return metrics


def _note(samples: list[Sample]) -> str:
    apart = max(float(each["apart"]) for each in samples)
    return f"frames of both ways are at most {apart:.1e} apart; encode is in neither"


class _World:
    """One rollout from a given frame, both ways → seconds until each frame was there, and the frames."""

    def __init__(self, network: ActionPredictor) -> None:
        self._network = network
        random = torch.Generator().manual_seed(0)
        clip, steps = CONFIG.clip, HORIZONS[-1]
        self._tokens = centred(torch.randn(1, 1, clip.patches, CONFIG.encoder.width, generator=random))
        self._moves = 0.05 * torch.randn(1, steps, CONFIG.action, generator=random)
        self._states = torch.rand(1, steps, CONFIG.state, generator=random)
        submodule = ImaginingSubmodule(network, fold=1, sequences=1, alone=True)
        self._engine = KVCacheEngine({"rollout": submodule})
        self._turn = 0
        self._seen = block_mask(steps, CONFIG.frame_tokens)

    def cached(self, steps: int) -> tuple[list[float], Tensor]:
        """Through the engine that serves, one frame appended a step."""
        self._turn += 1
        name = f"{self._turn}"
        step: Value = {
            "tokens": self._tokens, "poses": self._states[:, :1].numpy(), "given": self._states.numpy(),
        }  # fmt: skip
        frames, took = [], []
        for number in range(steps):
            began = time.process_time()
            inputs: Mapping[str, Value] = {"step": step, "moves": self._moves.numpy()}
            [outcome] = self._engine.step([Firing(name, name, "rollout", "rollout", inputs, iteration=number)])
            if not isinstance(outcome, Completed):
                raise TypeError(f"{outcome}")
            step = outcome.outputs["step"]  # type: ignore[assignment]
            took.append(time.process_time() - began)
            assert isinstance(step, Mapping)
            tokens = step["tokens"]
            assert isinstance(tokens, Tensor)
            frames.append(tokens)
        self._engine.end_session(name)
        return list(accumulate(took)), torch.cat(frames, dim=1)

    def anew(self, steps: int) -> tuple[list[float], Tensor]:
        """The released method: the predictor over all frames so far, of which the last prediction is kept."""
        frames, took = self._tokens, []
        with torch.inference_mode():
            for count in range(1, steps + 1):
                began = time.process_time()
                known = Frames(frames, self._moves[:, :count], self._states[:, :count], 0)
                tokens = count * CONFIG.frame_tokens
                [hidden] = self._network.forward([known], BlockCausal(1, self._seen[:tokens, :tokens]))
                after = centred(self._network.predicted(hidden[:, -1:]))
                frames = torch.cat((frames, after), dim=1)
                took.append(time.process_time() - began)
        return list(accumulate(took)), frames[:, 1:]


def _flops_cached(steps: int) -> float:
    size = CONFIG.frame_tokens
    return sum(_flops(size, number * size) for number in range(1, steps + 1))


def _flops_anew(steps: int) -> float:
    size = CONFIG.frame_tokens
    return sum(_flops(number * size, number * size) for number in range(1, steps + 1))


def _flops(tokens: int, seen: int) -> float:
    """Of a pass: two a weight and token in the layers' matrices, attention's two products on top."""
    sizes = CONFIG.predictor
    matrices = 4 * sizes.width**2 + 2 * sizes.width * sizes.hidden
    return 2.0 * sizes.depth * tokens * (matrices + 2 * sizes.width * seen)
