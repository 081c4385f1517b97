"""The layers of a Llama network as one onnxruntime graph between two attentions, with 4-bit matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from models.blocks.onnx_graph import Activations, GraphDraft
from models.blocks.onnx_session import GraphSession, has_products, padded
from models.blocks.quantise import GROUP, Stored, dense, joined4
from models.blocks.rope import Rotation
from models.llama.config import LlamaConfig
from models.llama.weights import Weights
from mstar.submodule import Attention, Row

SHORT = 8
"""Most tokens of a row that is computed with rounded activations; above, unpacking the weights costs less."""


def can_fuse(config: LlamaConfig) -> bool:
    """Whether every matrix has whole groups of inputs, no layer has experts, and onnxruntime has the products."""
    widths = (config.hidden, config.inner, config.heads * config.head_dim)
    return config.moe is None and not any(width % GROUP for width in widths) and has_products()


class FusedStack:
    """All layers and the final norm (see `models.llama.layers.Stack`).

    A row of up to `SHORT` tokens goes through graphs with `int16` activations, a longer one through graphs with
    `float32` ones. What a row's tokens become does not depend on the other rows.

    Graph 0 ends before the first attention; graph n takes what attention n - 1 gave through the rest of its layer and
    the beginning of the next, the last one through the final norm.
    """

    __slots__ = ("_heads", "_long", "_scale", "_short", "_width")

    def __init__(self, config: LlamaConfig, weights: Weights) -> None:
        """Raises WeightsError for a tensor that is missing or of another shape."""
        self._heads = config.heads
        self._width = config.head_dim
        self._scale = config.head_dim**-0.5
        pairs = [_sessions(config, weights, index) for index in range(config.layers + 1)]
        self._short, self._long = zip(*pairs, strict=True)

    def __call__(self, hidden: Tensor, rotation: Rotation, attention: Attention, last: Tensor | None = None) -> Tensor:
        lanes = self._lanes(attention.rows, hidden, rotation)
        for layer in range(len(self._short) - 1):
            turned, values = zip(*(lane.advance(layer) for lane in lanes), strict=True)
            qk = _gathered(lanes, turned).unflatten(1, (-1, self._width))
            v = _gathered(lanes, values).unflatten(1, (-1, self._width))
            mixed = attention.attend(layer, qk[:, : self._heads], qk[:, self._heads :], v, scale=self._scale)
            for lane in lanes:
                lane.mix(mixed)
        if len(lanes) == 1:
            return lanes[0].finish(last)
        whole = _gathered(lanes, [lane.finish(None) for lane in lanes])
        return whole if last is None else whole[last]

    def _lanes(self, rows: Sequence[Row], hidden: Tensor, rotation: Rotation) -> Sequence[_Lane]:
        long = [row.tokens > SHORT for row in rows]
        half = self._width // 2
        cos, sin = rotation.cos[:, 0, :half], rotation.sin[:, 0, half:]
        if not any(long):
            return (_Lane(self._short, torch.Tensor.contiguous, hidden, cos, sin),)
        if all(long):
            return (_Lane(self._long, padded, hidden, cos, sin),)
        of_long = torch.tensor(long).repeat_interleave(torch.tensor([row.tokens for row in rows]))
        return tuple(
            _Lane(graphs, fit, hidden[which], cos[which], sin[which], which.nonzero().squeeze(1))
            for graphs, fit, which in (
                (self._short, torch.Tensor.contiguous, ~of_long),
                (self._long, padded, of_long),
            )
        )


class _Lane:
    """The tokens of a step that take the same graphs: `index` [tokens] int64 of them, or all.

    `fit` makes a tensor contiguous, with as many rows as the graphs' products need.
    """

    __slots__ = ("_fit", "_given", "_graphs", "_index", "_mixed", "tokens")

    def __init__(
        self,
        graphs: Sequence[GraphSession],
        fit: Callable[[Tensor], Tensor],
        hidden: Tensor,
        cos: Tensor,
        sin: Tensor,
        index: Tensor | None = None,
    ) -> None:
        self.tokens = hidden.shape[0]
        self._graphs = graphs
        self._fit = fit
        self._index = index
        self._given = {name: fit(part).numpy() for name, part in (("hidden", hidden), ("cos", cos), ("sin", sin))}
        self._mixed = hidden  # from `mix` on, [tokens as fitted, heads · dim]

    def advance(self, layer: int) -> tuple[Tensor, Tensor]:
        """Up to attention `layer`: queries and keys, rotated, side by side, and values, each [tokens, width]."""
        self._given["hidden"], turned, values = self._graphs[layer](self._given)
        return torch.from_numpy(turned)[0, : self.tokens], torch.from_numpy(values)[: self.tokens]

    def mix(self, mixed: Tensor) -> None:
        """Take what attention gave, [tokens of the step, heads, dim]."""
        own = mixed if self._index is None else mixed[self._index]
        self._mixed = self._fit(own.flatten(1))
        self._given["mixed"] = self._mixed.numpy()

    def finish(self, last: Tensor | None) -> Tensor:
        """After the final norm: the tokens `last`, or all, [n, hidden]."""
        hidden, mixed = torch.from_numpy(self._given["hidden"]), self._mixed
        if last is not None:
            hidden, mixed = self._fit(hidden[last]), self._fit(mixed[last])
        [normed] = self._graphs[-1]({"hidden": hidden.numpy(), "mixed": mixed.numpy()})
        return torch.from_numpy(normed)[: self.tokens if last is None else len(last)]

    def put(self, part: Tensor, whole: Tensor) -> None:
        """Write what belongs to this lane's tokens into what belongs to the step's."""
        whole[self._index] = part


def _gathered(lanes: Sequence[_Lane], parts: Sequence[Tensor]) -> Tensor:
    """Per lane [its tokens, width] → [tokens of the step, width]."""
    if len(lanes) == 1:
        return parts[0]
    whole = torch.empty(sum(lane.tokens for lane in lanes), parts[0].shape[1])
    for lane, part in zip(lanes, parts, strict=True):
        lane.put(part, whole)
    return whole


class _Once:
    """Weights whose tensors are read once, also if they are taken again."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._taken: dict[str, Stored] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def take(self, name: str, shape: tuple[int, ...]) -> Stored:
        if name not in self._taken:
            self._taken[name] = self._weights.take(name, shape)
        return self._taken[name]


def _sessions(config: LlamaConfig, weights: Weights, index: int) -> tuple[GraphSession, GraphSession]:
    """Graph `index` for short rows and for long ones."""
    once = _Once(weights)
    return GraphSession(_graph(config, once, index, "int16")), GraphSession(_graph(config, once, index, "float32"))


def _graph(config: LlamaConfig, weights: Weights, index: int, activations: Activations) -> bytes:
    """Graph `index`: inputs and outputs as a lane gives and takes them."""
    part = _Part(config, weights, GraphDraft(activations))
    q, half = config.heads * config.head_dim, config.head_dim // 2
    inputs = {"hidden": config.hidden}
    hidden = "hidden"
    if index > 0:
        inputs["mixed"] = q
        hidden = part.after_attention(index - 1, hidden, "mixed")
    if index == config.layers:
        return part.draft.model(inputs, [part.norm("model.norm", hidden)])
    if index == 0:
        hidden = part.draft.node("Identity", [hidden])
    turned, values = part.before_attention(index, hidden)
    return part.draft.model(inputs | {"cos": half, "sin": half}, [hidden, turned, values])


class _Part:
    """Halves of layers as operators of a draft."""

    __slots__ = ("_config", "_weights", "draft")

    def __init__(self, config: LlamaConfig, weights: Weights, draft: GraphDraft) -> None:
        self.draft = draft
        self._config = config
        self._weights = weights

    def norm(self, name: str, x: str) -> str:
        return self.draft.norm(x, self._vector(name, self._config.hidden), self._config.eps)

    def before_attention(self, index: int, hidden: str) -> tuple[str, str]:
        """hidden → queries and keys, normed where the family does, rotated [1, rows, …]; values [rows, …]."""
        config, attn = self._config, f"model.layers.{index}.self_attn."
        q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        outs = {f"{attn}q_proj": q, f"{attn}k_proj": kv, f"{attn}v_proj": kv}
        x = self.norm(f"model.layers.{index}.input_layernorm", hidden)
        qk, values = self.draft.split(self._linear(x, outs, config.hidden, config.qkv_bias), (q + kv, kv))
        if config.qk_norm:
            q_norm, k_norm = (self._vector(f"{attn}{name}_norm", config.head_dim) for name in "qk")
            qk = self.draft.head_norms(qk, [q_norm] * config.heads + [k_norm] * config.kv_heads, config.eps)
        return self.draft.rotated(qk, "cos", "sin"), values

    def after_attention(self, index: int, hidden: str, mixed: str) -> str:
        """hidden and what attention gave → hidden after the layer."""
        config, draft, prefix = self._config, self.draft, f"model.layers.{index}."
        inner, mlp = config.inner, f"{prefix}mlp."
        output = {f"{prefix}self_attn.o_proj": config.hidden}
        hidden = draft.add(hidden, self._linear(mixed, output, config.heads * config.head_dim, config.output_bias))
        x = self.norm(f"{prefix}post_attention_layernorm", hidden)
        outs = {f"{mlp}gate_proj": inner, f"{mlp}up_proj": inner}
        gate, up = draft.split(self._linear(x, outs, config.hidden, config.mlp_bias), 2)
        down = {f"{mlp}down_proj": config.hidden}
        return draft.add(hidden, self._linear(draft.gated(gate, up), down, inner, config.mlp_bias))

    def _linear(self, x: str, matrices: dict[str, int], width: int, bias: bool) -> str:
        """The named matrices [out, width] as one product with their outputs side by side."""
        taken = [self._weights.take(f"{name}.weight", (out, width)) for name, out in matrices.items()]
        biases = [self._vector(name, out, "bias") for name, out in matrices.items() if bias]
        return self.draft.product(x, joined4(taken), torch.cat(biases) if bias else None)

    def _vector(self, name: str, size: int, kind: str = "weight") -> Tensor:
        return dense(self._weights.take(f"{name}.{kind}", (size,)))
