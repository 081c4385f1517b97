"""From a client's observation to what the networks read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from models.pi05.flow import overlap_weights
from models.pi05.nodes.policy import Policy, policy, steps_of
from models.pi05.observation import Observation, parse
from models.pi05.pictures import seen
from models.pi05.prompt import render
from mstar.errors import Rejected
from mstar.submodule import Call, Output, Outputs, Packed, Step
from mstar.tensors import Value


class Observe:
    """observation → what the prefix and the flow begin with.

    - `pictures` [cameras that are there, 3, side, side] float32 in [-1, 1], in the order of the policy's slots;
    - `tokens` [n] int64: the prompt with the state in it;
    - `digest` int64: of both; equal ones have equal K/V;
    - `actions` [horizon, action_dim] float32: noise, by the request's seed unless the client gives it;
    - `guide` {"target" [horizon, action_dim], "weights" [horizon], "frozen", "previous" [rows, channels], "masked"}.
    """

    max_batch = 8

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        # A robot takes as many channels as there are statistics of, unless it says so itself.
        self._robot = replace(policy.robot, actions=policy.channels)

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        rows = [self._observe(call) for call in step.calls]
        return {name: [row[name] for row in rows] for name in ("pictures", "tokens", "digest", "actions", "guide")}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return False

    def _observe(self, call: Call) -> Mapping[str, Value]:
        config = self._policy.config
        steps_of(call)
        found = parse(call.inputs["observation"], self._robot, horizon=config.horizon, action_dim=config.action_dim)
        slots = [name for name in config.cameras if name in found.images]
        pictures = torch.stack([seen(found.images[name], config.vision.image) for name in slots])
        tokens = self._tokens(found)
        hashed = hashlib.blake2b(pictures.numpy().data, digest_size=8)
        hashed.update(tokens.tobytes())
        generator = torch.Generator().manual_seed(call.seed)
        noise = torch.randn(config.horizon, config.action_dim, generator=generator)
        return {
            "pictures": pictures,
            "tokens": torch.from_numpy(tokens),
            "digest": int.from_bytes(hashed.digest(), "little", signed=True),
            "actions": noise if found.noise is None else torch.tensor(found.noise),
            "guide": {
                **self._guide(found),
                "previous": found.previous,
                "masked": [name for name in config.cameras if name not in found.images],
            },
        }

    def _tokens(self, found: Observation) -> np.ndarray:
        config, encode = self._policy.config, self._policy.encode
        if found.tokens is not None:
            ids = found.tokens
            if ids.min() < 0 or ids.max() >= config.vocab:
                raise Rejected(f"tokens holds an id outside 0 … {config.vocab - 1}", param="tokens")
        elif encode is None:
            raise Rejected(
                "the checkpoint has no tokenizer (PaliGemma's tokenizer.json or tokenizer.model in its folder), "
                "so that the observation must hold tokens in place of prompt",
                code="no_tokenizer",
                param="prompt",
            )
        else:
            ids = np.array(encode(render(found.prompt, self._normalised_state(found))), np.int64)
        if len(ids) > config.max_tokens:
            raise Rejected(
                f"the prompt with the state holds {len(ids)} tokens, the policy takes {config.max_tokens}",
                code="context_length_exceeded",
                param="prompt",
            )
        return ids

    def _normalised_state(self, found: Observation) -> np.ndarray:
        state, known = found.state, self._policy.statistics.state
        assert state is not None
        most = self._policy.config.state_dim
        if known is None and len(state) > most:
            raise Rejected(f"state has {len(state)} values, the policy takes {most}", code="wrong_shape", param="state")
        if known is None:
            return state
        if len(state) != len(known.low):
            raise Rejected(
                f"state has {len(state)} values, the policy was trained on {len(known.low)}",
                code="wrong_shape",
                param="state",
            )
        return known.normalise(state)

    def _guide(self, found: Observation) -> Mapping[str, Value]:
        """The chunk before in the policy's own scale, its unused channels 0 as in training."""
        config, known = self._policy.config, self._policy.statistics.actions
        target = np.zeros((config.horizon, config.action_dim), np.float32)
        rows, channels = found.previous.shape
        target[:rows, :channels] = found.previous if known is None else known.only(channels).normalise(found.previous)
        weights = overlap_weights(config.horizon, found.delay, rows)
        return {"target": torch.from_numpy(target), "weights": weights, "frozen": found.delay}


def observe(settings: Mapping[str, Value]) -> Observe:
    """The node; settings as in `models.pi05.model`."""
    return Observe(policy(settings))
