"""The language model's node: prompt in, tokens out, one a pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.blocks.linear import Kernel
from models.blocks.values import integer, ints, record
from models.llama.checkpoint import open_checkpoint
from models.llama.config import read_config
from models.llama.fused import SHORT, FusedStack
from models.llama.network import Llama, kernel_of
from models.llama.weights import read_weights
from mstar.errors import Rejected, WeightsError
from mstar.submodule import STATE, Attention, Call, KVGeometry, Many, Output, Outputs, Packed, Row, Sampling, Step
from mstar.tensors import Value

MAX_TOKENS = 512


class LMSubmodule:
    """A prompt (input `tokens` [n] int64), or a pass of decoding (input `token`, the one drawn before).

    Outputs, one of each a call:
    - `token`: the id drawn, an end-of-turn token too; feeds the next pass.
    - `text_tokens`: the same as an item of a stream, or None for an end-of-turn token, which is never spoken; `cut`
      on the last, so that the text's segment ends with it.
    - `usage`, with the last token only: {"prompt", "reused" (of the prompt), "generated" (end of turn included),
      "reason": "stop" | "length"}. The last is end of turn, number `max_tokens`, or in the model's last position. That
      is the verdict as well: it stops the loop around decoding, and after a prompt the walk.

    - `begun`, with the first token after a prompt only: {"prompt", "reused"}.

    Settings: `max_tokens` (of the response, from 1; 512 if absent) besides those of sampling, which the engine reads.
    State: the prompt's length, what of it was reused, tokens drawn.
    """

    def __init__(self, network: Llama, *, max_batch: int = 8, sampling: Sampling | None = None) -> None:
        config = network.config
        self.network = network
        self.max_batch = max_batch
        self.sampling: Sampling | None = sampling or Sampling()
        self.geometry = KVGeometry(config.layers, config.kv_heads, config.head_dim, network.dtype)
        self.capturable = network.capturable
        self.together = SHORT if isinstance(network.stack, FusedStack) else 1
        self._eos = frozenset(config.eos)

    def keys(self, call: Call) -> np.ndarray:
        """The prompt's ids, or the one id that a decode pass appends."""
        ids = ints(call.inputs["tokens"]) if _prompts(call) else np.array([integer(call.inputs["token"])])
        config = self.network.config
        if not len(ids):
            raise Rejected("the prompt holds no tokens", param="tokens")
        if len(ids) > config.max_positions:
            raise Rejected(
                f"the prompt holds {len(ids)} tokens, the model takes {config.max_positions}",
                code="context_length_exceeded",
                param="tokens",
            )
        if ids.min() < 0 or ids.max() >= config.vocab:
            raise Rejected(f"a token id is outside 0 … {config.vocab - 1}", param="tokens")
        _max_tokens(call)
        return ids

    def cut(self, call: Call, stop: int) -> Call:
        """The first `stop` tokens of a prompt."""
        return replace(call, inputs={**call.inputs, "tokens": ints(call.inputs["tokens"])[:stop]})

    def recompute(self, call: Call, keys: np.ndarray) -> Call:
        """A prompt of the tokens that stood in a sequence whose K/V were dropped."""
        return replace(call, inputs={"tokens": keys})

    def collate(self, calls: Sequence[Call]) -> Packed:
        ids = [self.keys(call)[call.reused if _prompts(call) else 0 :] for call in calls]
        rows = tuple(Row(call=i, tokens=len(part)) for i, part in enumerate(ids))
        return Packed(self._tensors(torch.from_numpy(np.concatenate(ids)), [len(part) for part in ids]), rows)

    def blank(self, counts: Sequence[int]) -> Mapping[str, Tensor]:
        """A step of the token 0."""
        return self._tensors(torch.zeros(sum(counts), dtype=torch.int64), counts)

    def _tensors(self, ids: Tensor, counts: Sequence[int]) -> Mapping[str, Tensor]:
        """ids [tokens] int64 of rows of so many → what `compute` takes."""
        device = self.network.device
        if all(count == 1 for count in counts):
            return {"ids": ids.to(device)}
        return {"ids": ids.to(device), "last": (torch.tensor(counts).cumsum(0) - 1).to(device)}  # [calls]

    def forward(self, packed: Packed, step: Step) -> Outputs:
        if step.attention is None:
            raise ValueError("a language model needs a KV engine")
        return self.conclude(self.compute(packed.tensors, step.attention), packed, step)

    def compute(self, tensors: Mapping[str, Tensor], attention: Attention) -> Mapping[str, Tensor]:
        """ids [tokens], and where a row has several, `last` [calls] → logits [calls, vocab]."""
        hidden = self.network.forward(tensors["ids"], attention.positions, attention, tensors.get("last"))
        return {"logits": self.network.logits(hidden)}

    def conclude(self, computed: Mapping[str, Tensor], packed: Packed, step: Step) -> Outputs:
        """The tokens drawn, and what they are to whom."""
        if step.sample is None:
            raise ValueError("a language model needs a KV engine with sampling")
        tokens = step.sample(computed["logits"]).tolist()
        drawn = zip(step.calls, tokens, packed.rows, strict=True)
        states, usages = zip(*(self._account(call, token, row) for call, token, row in drawn), strict=True)
        spoken = [self._spoken(token, usage is not None) for token, usage in zip(tokens, usages, strict=True)]
        begun = [_begun(call, state) for call, state in zip(step.calls, states, strict=True)]
        return {"token": tokens, "text_tokens": spoken, "usage": usages, "begun": begun, STATE: states}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:  # noqa: ARG002 - the step saw the call
        return outputs["usage"] is not None

    def _account(self, call: Call, token: int, row: Row) -> tuple[Value, Value]:
        """The state after a token, and the usage if it is the last."""
        length = call.length + row.tokens
        fresh: Mapping[str, Value] = {"prompt": length, "reused": call.cached, "drawn": 0}
        so_far = fresh if _prompts(call) else record(call.state)
        drawn = integer(so_far["drawn"]) + 1
        state = {**so_far, "drawn": drawn}
        ended = token in self._eos
        if not ended and drawn < _max_tokens(call) and length < self.network.config.max_positions:
            return state, None
        usage: Value = {
            "prompt": so_far["prompt"],
            "reused": so_far["reused"],
            "generated": drawn,
            "reason": "stop" if ended else "length",
        }
        return state, usage

    def _spoken(self, token: int, final: bool) -> Many | None:
        items = () if token in self._eos else (token,)
        return Many(items, cut=final) if items or final else None


def _prompts(call: Call) -> bool:
    return "tokens" in call.inputs


def _begun(call: Call, state: Value) -> Value:
    if not _prompts(call):
        return None
    return {name: record(state)[name] for name in ("prompt", "reused")}


def _max_tokens(call: Call) -> int:
    value = call.settings.get("max_tokens", MAX_TOKENS)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Rejected(f"max_tokens must be a positive integer, not {value!r}", param="max_tokens")
    return value


def load_network(path: Path, kernel: Kernel = "int4", *, fused: bool = True, device: str = "cpu") -> Llama:
    """The network of a hub folder, a GGUF file or a folder with one (see `Llama`); raises WeightsError."""
    checkpoint = open_checkpoint(path)
    config = read_config(checkpoint)
    return Llama(config, read_weights(checkpoint, config), kernel, fused=fused, device=device)


def language_model(settings: Mapping[str, Value]) -> LMSubmodule:
    """Settings: `llm` (path of the checkpoint), `llm_kernel` and `device` (see `kernel_of`)."""
    path = settings.get("llm")
    if not isinstance(path, str):
        raise WeightsError(f"llm must be the path of a checkpoint, not {path!r}")
    kernel, device = kernel_of(settings)
    return LMSubmodule(load_network(Path(path), kernel, device=device))
