"""The language model that the GPU path is tested with, on the CPU: a contract kept where no GPU is."""

from __future__ import annotations

import torch

from mstar.engine.api import Completed, Firing
from mstar.engine.attention.choose import best_backend
from mstar.engine.attention.torch_backend import TorchBackend
from mstar.engine.kv.settings import KVSettings
from mstar.engine.kv_engine import KVCacheEngine
from mstar.submodule import Capturable, Divisible, KVGeometry
from tests.gpu.decoder import TINY, random_lm


def test_it_decodes_in_a_batch_as_alone() -> None:
    decoder = random_lm(TINY, "cpu", "float32")
    assert isinstance(decoder, Capturable)
    assert isinstance(decoder, Divisible)
    prompts = {"a": list(range(70)), "b": [5, 6, 7]}

    def said(*names: str) -> list[list[int]]:
        settings = KVSettings(pages=64, graphs=True)
        lm = KVCacheEngine({"lm": decoder}, settings={"lm": settings}, backend=best_backend)
        firings = {n: Firing(n, n, "lm", "prefill", {"tokens": prompts[n]}, prompt=True) for n in names}
        tokens: dict[str, list[int]] = {n: [] for n in names}
        while any(len(own) < 5 for own in tokens.values()):
            walk = next(f.walk for f in firings.values() if len(tokens[f.request]) < 5)
            batch = [f for f in firings.values() if f.walk == walk]
            for firing, outcome in zip(batch, lm.step(batch), strict=True):
                if isinstance(outcome, Completed):
                    token = outcome.outputs["token"]
                    assert isinstance(token, int)
                    tokens[firing.request].append(token)
                    firings[firing.request] = Firing(firing.session, firing.request, "lm", "decode", {"token": token})
        return [own[:5] for own in tokens.values()]

    assert said("a", "b") == [*said("a"), *said("b")]


def test_without_a_gpu_attention_is_torchs() -> None:
    half = KVGeometry(1, 1, 64, dtype=torch.bfloat16)
    assert isinstance(best_backend(half, KVSettings(pages=1)), TorchBackend)
