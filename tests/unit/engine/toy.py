"""A language model of two layers with random weights, small enough to be exact, for tests of the engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mstar.engine.api import Completed, Firing, Outcome, Partial
from mstar.engine.kv_engine import KVCacheEngine, KVSettings
from mstar.submodule import STATE, Call, KVGeometry, Outputs, Packed, Row, Sampling, Step
from mstar.tensors import Output, Value

VOCAB, HEADS, KV_HEADS, DIM, WIDTH, LAYERS = 50, 4, 2, 8, 32, 2


class Fault(Exception):
    """What a faulty firing raises: its settings name the place."""


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T whose rows do not depend on each other in the last bit (a library's matrix product may)."""
    return (x[:, None, :] * weight).sum(-1)


class ToyLM:
    """Walks `prefill` (input `tokens`) and `decode` (input `token`); output `token`. Stops at `settings["eos"]`."""

    def __init__(self, *, max_batch: int = 8, sampling: Sampling | None = None) -> None:
        generator = torch.Generator().manual_seed(7)
        self.max_batch = max_batch
        self.sampling: Sampling | None = sampling or Sampling()
        self.geometry = KVGeometry(LAYERS, KV_HEADS, DIM, labels=("main", "free"))
        self._waves = torch.sin(torch.arange(512)[:, None] * 0.7)  # a library's sine depends on the place in its row
        self._embedding = torch.randn(VOCAB, WIDTH, generator=generator)
        sizes = ((HEADS + 2 * KV_HEADS) * DIM, WIDTH)
        self._qkv = torch.randn(LAYERS, *sizes, generator=generator) / WIDTH**0.5
        self._out = torch.randn(LAYERS, WIDTH, HEADS * DIM, generator=generator) / WIDTH**0.5
        self.batches: list[int] = []
        self.reused: list[int] = []

    def keys(self, call: Call) -> np.ndarray:
        _fail(call, "keys")
        return _tokens(call)

    def collate(self, calls: Sequence[Call]) -> Packed:
        for call in calls:
            _fail(call, "collate")
        self.reused = [call.reused for call in calls]
        new = [_tokens(call)[call.reused :] for call in calls]
        rows = tuple(Row(i, len(tokens)) for i, tokens in enumerate(new))
        return Packed({"tokens": torch.from_numpy(np.concatenate(new))}, rows)

    def forward(self, packed: Packed, step: Step) -> Outputs:
        self.batches.append(len(step.calls))
        attention, sample = step.attention, step.sample
        assert attention is not None
        assert sample is not None
        x = self._embedding[packed.tensors["tokens"]] + self._waves[attention.positions]
        for layer in range(LAYERS):
            q, k, v = _product(x, self._qkv[layer]).split([HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM], -1)
            attended = attention.attend(
                layer, q.reshape(-1, HEADS, DIM), k.reshape(-1, KV_HEADS, DIM), v.reshape(-1, KV_HEADS, DIM)
            )
            x = x + _product(attended.flatten(1), self._out[layer])
            for call in step.calls:
                _fail(call, "forward")
        last = torch.tensor([row.tokens for row in packed.rows]).cumsum(0) - 1
        logits = _product(x[last], self._embedding)
        return {"token": sample(logits).tolist(), "logits": list(logits)}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        _fail(call, "verdict")
        return outputs["token"] == call.settings.get("eos")


def _tokens(call: Call) -> np.ndarray:
    if call.walk == "decode":
        return np.asarray([call.inputs["token"]], dtype=np.int64)
    return np.asarray(call.inputs["tokens"], dtype=np.int64)


def _fail(call: Call, place: str) -> None:
    if call.settings.get("fault") == place:
        raise Fault(f"{call.request} in {place}")


def engine(toy: ToyLM | None = None, **settings: Any) -> KVCacheEngine:
    chosen = KVSettings(**{"pages": 64, "page_size": 4, "grain": 4, **settings})
    return KVCacheEngine({"lm": toy or ToyLM()}, settings={"lm": chosen})


def prefill(request: str, tokens: Sequence[int], session: str = "s", **settings: Any) -> Firing:
    return Firing(session, request, "lm", "prefill", {"tokens": list(tokens)}, settings=settings, prompt=True, seed=5)


def decode(request: str, token: Value, session: str = "s", **settings: Any) -> Firing:
    return Firing(session, request, "lm", "decode", {"token": token}, settings=settings, seed=5)


def outputs(outcome: Outcome) -> Mapping[str, Output]:
    assert isinstance(outcome, Completed), outcome
    return outcome.outputs


def token(outcome: Outcome) -> int:
    """The token that a firing put out."""
    value = outputs(outcome)["token"]
    assert isinstance(value, int)
    return value


def logits(outcome: Outcome) -> Tensor:
    """[vocab], what the token was chosen from."""
    value = outputs(outcome)["logits"]
    assert isinstance(value, Tensor)
    return value


def finished(lm: KVCacheEngine, firing: Firing) -> Outcome:
    """The firing's outcome after all pieces before it."""
    for _ in range(1000):
        (outcome,) = lm.step([firing])
        if not isinstance(outcome, Partial):
            return outcome
    raise AssertionError("it never ends")


def answer(
    lm: KVCacheEngine, request: str, prompt: Sequence[int], count: int, session: str = "s", **settings: Any
) -> list[int]:
    """`count` tokens after the prompt; the request is left open."""
    tokens = [token(finished(lm, prefill(request, prompt, session, **settings)))]
    while len(tokens) < count:
        tokens.append(token(finished(lm, decode(request, tokens[-1], session, **settings))))
    return tokens


class DivisibleLM(ToyLM):
    """The same with prompts in pieces, and K/V that may be computed again."""

    together = 3

    def __init__(self, *, sampling: Sampling | None = None) -> None:
        super().__init__(sampling=sampling)
        self.geometry = KVGeometry(LAYERS, KV_HEADS, DIM)

    def cut(self, call: Call, stop: int) -> Call:
        return replace(call, inputs={"tokens": _tokens(call)[:stop]})

    def recompute(self, call: Call, keys: np.ndarray) -> Call:
        return replace(call, walk="prefill", inputs={"tokens": keys})


class GuidedLM(ToyLM):
    """The same with a second label, which sees the last token only, and a cross-attention context at the prompt."""

    def __init__(self, *, sampling: Sampling | None = None) -> None:
        super().__init__(sampling=sampling)
        self.geometry = KVGeometry(LAYERS, KV_HEADS, DIM, labels=("main", "free"), cross_context=8, cross_layers=LAYERS)

    def collate(self, calls: Sequence[Call]) -> Packed:
        new = [_tokens(call)[call.reused :] for call in calls]
        tokens = [part for each in new for part in (each, each[-1:])]
        rows = tuple(Row(i, n, label) for i, each in enumerate(new) for n, label in ((len(each), "main"), (1, "free")))
        return Packed({"tokens": torch.from_numpy(np.concatenate(tokens))}, rows)

    def forward(self, packed: Packed, step: Step) -> Outputs:
        attention, sample = step.attention, step.sample
        assert attention is not None
        assert sample is not None
        x = self._embedding[packed.tensors["tokens"]] + self._waves[attention.positions]
        shape = (-1, KV_HEADS, DIM)
        for layer in range(LAYERS):
            for index, row in enumerate(packed.rows):
                if step.calls[row.call].walk == "prefill" and row.label == "main":
                    context = self._embedding[torch.from_numpy(_tokens(step.calls[row.call])[:8])]
                    half = context.reshape(-1, 2, KV_HEADS, DIM)
                    attention.write_cross(layer, index, half[:, 0], half[:, 1] + layer)
            q, k, v = _product(x, self._qkv[layer]).split([HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM], -1)
            q = q.reshape(-1, HEADS, DIM)
            seen = attention.attend(layer, q, k.reshape(shape), v.reshape(shape)) + attention.attend_cross(layer, q)
            x = x + _product(seen.flatten(1), self._out[layer])
        last = torch.tensor([row.tokens for row in packed.rows]).cumsum(0) - 1
        rows = _product(x[last], self._embedding)
        logits = rows[1::2] + 1.5 * (rows[::2] - rows[1::2])
        passes = [1 + (call.state if isinstance(call.state, int) else 0) for call in step.calls]
        return {"token": sample(logits).tolist(), "logits": list(logits), STATE: passes}


def divisible(_: Mapping[str, Value]) -> DivisibleLM:
    """As a family's factory."""
    return DivisibleLM()


def plain(_: Mapping[str, Value]) -> ToyLM:
    """As a family's factory."""
    return ToyLM()
