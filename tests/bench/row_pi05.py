"""π0.5's flow steps over a cached prefix, beside the same steps with the prefix computed anew in each.

Widths are scaled to a small machine, sequences are the real ones: three cameras of 256 tokens, a prompt, 50 actions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from models.blocks.tensors import RandomTensors
from models.pi05.config import GemmaConfig, Pi05Config
from models.pi05.model import FLOW_STEPS
from models.pi05.network import Expert, Eyes, Prefix
from models.pi05.nodes.acting import LLM
from models.siglip.config import SiglipConfig
from mstar.engine.api import Completed, Firing
from mstar.engine.kv_engine import KVCacheEngine, KVSettings
from mstar.tensors import Output, Value
from tests.bench.report import Metric, Row, Sample

CONFIG = Pi05Config(
    prefix=GemmaConfig(384, 4, 3072, 8, 1, 64),
    expert=GemmaConfig(192, 4, 768, 8, 1, 64),
    vision=SiglipConfig(image=224, patch=14, hidden=192, inner=768, layers=4, heads=4),
    vocab=1000,
)
PROMPT = 40
TOLERANCE = 1e-3


def run(*, quick: bool) -> Row:
    """Five rounds, two if quick; both ways in turn, their actions compared."""
    torch.set_num_threads(2)
    weights = RandomTensors()
    chunk = _Chunk(LLM(CONFIG, Prefix(CONFIG, weights), Expert(CONFIG, weights)))
    eyes = Eyes(CONFIG, weights)
    _seconds(partial(chunk.cached, 0))
    samples: list[Sample] = []
    for turn in range(1, 3 if quick else 6):
        encode, _ = _seconds(lambda: eyes(torch.zeros(len(CONFIG.cameras), 3, 224, 224)))
        cached, ours = _seconds(partial(chunk.cached, turn))
        anew, theirs = _seconds(partial(chunk.anew, turn))
        if (ours - theirs).abs().max() > TOLERANCE:
            raise RuntimeError("the two ways give other actions")
        samples.append({"encode_ms": encode * 1e3, "cached_ms": cached * 1e3, "anew_ms": anew * 1e3})

    def values(name: str) -> tuple[float, ...]:
        return tuple(float(each[name]) for each in samples)

    ratio = tuple(slow / fast for slow, fast in zip(values("anew_ms"), values("cached_ms"), strict=True))
    flops = _flops()
    return Row(
        "pi05",
        (
            Metric("encode", "ms", values("encode_ms")),
            Metric("prefix_once", "ms", values("cached_ms")),
            Metric("prefix_each_step", "ms", values("anew_ms")),
            Metric("ratio", "×", ratio),
            Metric("ratio_of_flops", "×", (FLOW_STEPS * sum(flops) / (flops[0] + FLOW_STEPS * flops[1]),)),
        ),
        tuple(samples),
        notes=(f"GFLOP: prefix {flops[0] / 1e9:.1f}, a flow step {flops[1] / 1e9:.2f}; encode is in neither way",),
    )


class _Chunk:
    """One chunk of actions from a given picture, both ways on the same engine."""

    def __init__(self, node: LLM) -> None:
        self._engine = KVCacheEngine({"LLM": node}, settings={"LLM": KVSettings(pages=256)})
        generator = torch.Generator().manual_seed(0)
        self._pictures = torch.randn(_prefix_length() - PROMPT, CONFIG.prefix.width, generator=generator)
        self._noise = torch.randn(CONFIG.horizon, CONFIG.action_dim, generator=generator)

    def cached(self, turn: int) -> Tensor:
        """The prefix once, then the flow steps."""
        request = f"cached {turn}"
        self._prefill(request, 2 * turn)
        actions: Output = self._noise
        for step in range(FLOW_STEPS):
            actions = self._flow(request, actions, step)
        return self._end(request, actions)

    def anew(self, turn: int) -> Tensor:
        """The prefix before every flow step."""
        actions: Output = self._noise
        for step in range(FLOW_STEPS):
            request = f"anew {turn} {step}"
            self._prefill(request, 2 * turn + 1)
            actions = self._flow(request, actions, step)
            self._end(request, actions)
        assert isinstance(actions, Tensor)
        return actions

    def _prefill(self, request: str, digest: int) -> None:
        inputs: Mapping[str, Value] = {
            "image_tokens": self._pictures,
            "tokens": torch.arange(PROMPT),
            "digest": digest,
        }
        self._step(Firing(request, request, "LLM", "prefill", inputs, prompt=True))

    def _flow(self, request: str, actions: Output, step: int) -> Output:
        guide: Value = {"target": self._noise, "weights": torch.zeros(CONFIG.horizon), "frozen": 0}
        inputs: Mapping[str, Value] = {"actions": actions, "guide": guide}  # type: ignore[dict-item]
        return self._step(Firing(request, request, "LLM", "action_gen", inputs, iteration=step)).outputs["actions"]

    def _step(self, firing: Firing) -> Completed:
        [outcome] = self._engine.step([firing])
        if not isinstance(outcome, Completed):
            raise TypeError(f"{firing.walk}: {outcome}")
        return outcome

    def _end(self, request: str, actions: Output) -> Tensor:
        self._engine.end_session(request)
        assert isinstance(actions, Tensor)
        return actions


def _prefix_length() -> int:
    return len(CONFIG.cameras) * CONFIG.vision.tokens + PROMPT


def _flops() -> tuple[float, float]:
    """Of a prefix and of a flow step: two a weight and token in matrices, attention's two products on top."""
    prefix, step = _prefix_length(), CONFIG.horizon
    return _gemma(CONFIG.prefix, prefix, prefix), _gemma(CONFIG.expert, step, prefix + step)


def _gemma(config: GemmaConfig, tokens: int, seen: int) -> float:
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    matrices = config.width * (2 * q + 2 * kv + 3 * config.inner)
    return 2.0 * config.depth * tokens * (matrices + 2 * q * seen)


def _seconds(work: Callable[[], Tensor]) -> tuple[float, Tensor]:
    began = time.perf_counter()
    with torch.inference_mode():
        found = work()
    return time.perf_counter() - began, found
