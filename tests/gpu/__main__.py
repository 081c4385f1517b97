"""`python -m tests.gpu`: the decode loop of the language model's node at Orpheus-3B's size.

With and without graphs, greedy and sampled as speech is: prints tokens a second and milliseconds a step at batches of
1, 4 and 16, and the share of the memory's bandwidth that reading the weights takes. `--tiny --device cpu` tries the
program where there is no GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from mstar.engine.api import Completed, Firing
from mstar.engine.attention.choose import best_backend
from mstar.engine.kv.settings import default_settings
from mstar.engine.kv_engine import KVCacheEngine
from tests.gpu.decoder import ORPHEUS_3B, TINY, parameters, random_lm

BATCHES = (1, 4, 16)
GREEDY: Mapping[str, Any] = {"max_tokens": 4096}
SPEECH: Mapping[str, Any] = {**GREEDY, "temperature": 0.6, "top_p": 0.8, "repetition_penalty": 1.3}
"""Sampling as the speech model has it."""
KINDS = (("graphs off", False, GREEDY), ("graphs on", True, GREEDY), ("graphs on, sampled", True, SPEECH))
PROMPT, WARM = 64, 8


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("there is no CUDA device; --tiny --device cpu tries the program")
        return 2
    size = TINY if options.tiny else ORPHEUS_3B
    decoder, weights = random_lm(size, options.device), parameters(size)
    print(f"{weights / 1e9:.2f} billion weights, {torch.bfloat16}, on {_device(options.device)}")
    for name, graphs, sampling in KINDS:
        settings = replace(default_settings(options.device), graphs=graphs)
        for batch in BATCHES:
            lm = KVCacheEngine({"lm": decoder}, settings={"lm": settings}, backend=best_backend)
            seconds = _decode(lm, batch, options.steps, sampling)
            counters = lm.counters()
            speed = 2 * weights / seconds / 1e9
            print(
                f"{name:18}  batch {batch:2}  {1000 * seconds:8.3f} ms a step  "
                f"{batch / seconds:9.1f} tokens/s  weights at {speed:7.1f} GB/s  "
                f"replays {counters['graph_replays']}, eager {counters['graph_eager']}"
            )
    return 0


def _decode(lm: KVCacheEngine, batch: int, steps: int, sampling: Mapping[str, Any]) -> float:
    """Seconds a step, mean of `steps` after a few."""
    names = [f"r{n}" for n in range(batch)]
    tokens = {}
    for n, name in enumerate(names):
        prompt = [(n + i * i) % 500 for i in range(PROMPT)]
        first = Firing(name, name, "lm", "prefill", {"tokens": prompt}, settings=sampling, prompt=True, seed=n)
        (outcome,) = lm.step([first])
        assert isinstance(outcome, Completed), outcome
        tokens[name] = outcome.outputs["token"]
    began = 0.0
    for step in range(WARM + steps):
        if step == WARM:
            began = time.perf_counter()
        firings = [
            Firing(name, name, "lm", "decode", {"token": tokens[name]}, settings=sampling, seed=n)  # type: ignore[dict-item]
            for n, name in enumerate(names)
        ]
        for name, outcome in zip(names, lm.step(firings), strict=True):
            assert isinstance(outcome, Completed), outcome
            tokens[name] = outcome.outputs["token"]
    return (time.perf_counter() - began) / steps


def _device(name: str) -> str:
    return torch.cuda.get_device_name() if name.startswith("cuda") else name


if __name__ == "__main__":
    sys.exit(main())
