"""The nodes that think and act: the prefix into the cache, the flow steps over it, and the actions' own units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from models.blocks.precision import precision
from models.blocks.values import floats, integer, items, record
from models.pi05.config import Pi05Config
from models.pi05.flow import Guide, advance, times
from models.pi05.network import Expert, Prefix
from models.pi05.nodes.policy import Policy, policy, steps_of, tensors
from mstar.submodule import Call, KVGeometry, Output, Outputs, Packed, Row, Sampling, Step
from mstar.tensors import Value

Network = TypeVar("Network", Prefix, Expert)


class LLM:
    """PaliGemma and the action expert over one cache.

    Prefix (inputs `image_tokens` [n, width], `tokens` [m] int64, `digest`): K/V of n + m positions that all see one
    another; no outputs. Their K/V depend on the whole, so that a position's key is that of the whole prefix: all of it
    is reused for an equal observation, or nothing.

    Flow step (inputs `actions` [horizon, dim], `guide`): `actions` after the step. The chunk's rows see the prefix and
    each other; their K/V are not kept. Requests at different steps share a batch.
    """

    max_batch = 8
    silent = True
    sampling: Sampling | None = None

    def __init__(
        self, config: Pi05Config, prefix: Prefix | None, expert: Expert | None, dtype: torch.dtype = torch.float32
    ) -> None:
        """Without `prefix`, or `expert`, where the one walk or the other never comes; `dtype`: that of both."""
        self._config = config
        self._prefix = prefix
        self._expert = expert
        gemma = config.prefix
        self.geometry = KVGeometry(gemma.depth, gemma.kv_heads, gemma.head_dim, dtype)
        self._modulation = lru_cache(maxsize=4)(self._modulation_of)

    def keys(self, call: Call) -> np.ndarray:
        """One per position of the prefix; none for a flow step, which appends nothing."""
        if _flows(call):
            return np.zeros(0, np.int64)
        length = len(_tensor(call, "image_tokens")) + len(_tensor(call, "tokens"))
        return np.arange(length, dtype=np.int64) + np.int64(integer(call.inputs["digest"]))

    def collate(self, calls: Sequence[Call]) -> Packed:
        if _flows(calls[0]):
            actions = torch.stack([_tensor(call, "actions") for call in calls]).to(_there(self._expert).device)
            rows = [Row(i, self._config.horizon, causal=False, store=False) for i in range(len(calls))]
            return Packed({"actions": actions}, tuple(rows))
        parts, prefix = [], _there(self._prefix)
        for call in calls:
            words = prefix.embed(_tensor(call, "tokens").to(prefix.device))
            parts.append(torch.cat((_tensor(call, "image_tokens").to(prefix.device), words))[call.reused :])
        rows = [Row(i, len(part), causal=False) for i, part in enumerate(parts) if len(part)]
        return Packed({"prefix": torch.cat(parts)}, tuple(rows))

    def forward(self, packed: Packed, step: Step) -> Outputs:
        if "prefix" in packed.tensors and not packed.rows:
            return {}  # all of it is cached
        if step.attention is None:
            raise ValueError("the policy needs a KV engine")
        if "prefix" in packed.tensors:
            _there(self._prefix).prefill(packed.tensors["prefix"], step.attention)
            return {}
        actions = packed.tensors["actions"]
        at = [(call.iteration, steps_of(call)) for call in step.calls]
        modulation = torch.stack([self._modulation(steps)[done] for done, steps in at])
        velocities = _there(self._expert).velocity(actions, modulation, step.attention)
        chunks = zip(actions, velocities, at, step.calls, strict=True)
        return {"actions": [advance(a, v, done, n, self._guide(call)) for a, v, (done, n), call in chunks]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _modulation_of(self, steps: int) -> Tensor:
        """[steps, norms, 3, width]."""
        expert = _there(self._expert)
        return expert.modulation(times(steps)[:-1].to(expert.device))

    def _guide(self, call: Call) -> Guide | None:
        given = record(call.inputs["guide"])
        if not floats(given["weights"]).any():
            return None
        device = _there(self._expert).device
        target, weights = (cast("Tensor", given[name]).to(device) for name in ("target", "weights"))
        return Guide(target, weights, integer(given["frozen"]))


class Act:
    """actions (normalised), guide → actions {"actions" [horizon, channels] float32 in the robot's units, "frozen":
    leading rows that are those of the chunk before, bit for bit, "masked": names of the cameras that were not there}.
    """

    max_batch = 16

    def __init__(self, policy: Policy) -> None:
        self._channels = policy.channels
        known = policy.statistics.actions
        self._known = None if known is None else known.only(policy.channels)

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        return {"actions": [self._restored(call) for call in step.calls]}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _restored(self, call: Call) -> Value:
        guide = record(call.inputs["guide"])
        frozen = integer(guide["frozen"])
        chunk = floats(call.inputs["actions"])[:, : self._channels]  # [horizon, channels]
        chunk = chunk.copy() if self._known is None else self._known.restore(chunk)
        chunk[:frozen] = floats(guide["previous"])[:frozen]
        return {"actions": chunk, "frozen": frozen, "masked": items(guide["masked"])}


def _there(network: Network | None) -> Network:
    """TypeError for a walk that the node was not made for."""
    if network is None:
        raise TypeError("this rank has no weights for the walk")
    return network


def _flows(call: Call) -> bool:
    return "actions" in call.inputs


def _tensor(call: Call, name: str) -> Tensor:
    value = call.inputs[name]
    return value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))


def llm(settings: Mapping[str, Value]) -> LLM:
    """The node, with what its `walks` need; settings as in `models.pi05.model`."""
    config, weights, dtype = policy(settings).config, tensors(settings), precision(settings)
    walks = settings.get("walks", ("prefill", "action_gen"))
    assert isinstance(walks, Sequence)
    prefix = Prefix(config, weights, dtype) if "prefill" in walks else None
    expert = Expert(config, weights, dtype) if "action_gen" in walks else None
    return LLM(config, prefix, expert, dtype)


def act(settings: Mapping[str, Value]) -> Act:
    """The node; settings as in `models.pi05.model`."""
    return Act(policy(settings))
