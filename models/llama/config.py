"""Shape and constants of a Llama-layout network, from public config files (torch-free)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from models.blocks.rope_config import RopeConfig, parse_rope
from models.llama.checkpoint import Checkpoint, HubFolder
from models.llama.gguf_file import GgufFile
from mstar.errors import WeightsError
from mstar.tensors import Value

Family = Literal["llama", "qwen2", "qwen3", "qwen3_moe"]

_ARCHITECTURES: Mapping[str, Family] = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
}
_GGUF_ARCHITECTURES: Mapping[str, Family] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
}


@dataclass(frozen=True, slots=True)
class MoEConfig:
    experts: int
    top_k: int
    inner: int  # width of one expert
    normalise: bool  # norm_topk_prob
    dense_layers: frozenset[int] = frozenset()  # layers with an ordinary gated MLP


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    family: Family
    vocab: int
    hidden: int
    inner: int  # width of the gated MLP
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope: RopeConfig
    max_positions: int
    tied: bool  # lm_head is the embedding
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    moe: MoEConfig | None = None
    bos: int | None = None
    eos: tuple[int, ...] = ()


def read_config(checkpoint: Checkpoint) -> LlamaConfig:
    """Raises WeightsError, naming file and field, for anything that would change the result and is not known here."""
    match checkpoint:
        case HubFolder(path):
            fields = dict(checkpoint.json("config.json"))
            fields |= {k: v for k, v in checkpoint.optional_json("generation_config.json").items() if k == _EOS}
            try:
                return from_hub(fields)
            except WeightsError as cause:
                raise WeightsError(f"{path / 'config.json'}: {cause}") from None
        case GgufFile(path):
            try:
                return from_gguf(checkpoint)
            except WeightsError as cause:
                raise WeightsError(f"{path}: {cause}") from None


_EOS = "eos_token_id"


class _Fields:
    """Typed access to a config's fields."""

    __slots__ = ("_fields", "_prefix")

    def __init__(self, fields: Mapping[str, Value], prefix: str = "") -> None:
        self._fields = fields
        self._prefix = prefix

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise WeightsError(f"{self._prefix}{name} must be a positive integer, not {value!r}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WeightsError(f"{self._prefix}{name} must be a number, not {value!r}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise WeightsError(f"{self._prefix}{name} must be true or false, not {value!r}")
        return value

    def _get(self, name: str, default: Value) -> Value:
        value = self._fields.get(self._prefix + name)
        if value is None:
            value = default
        if value is None:
            raise WeightsError(f"{self._prefix}{name} is missing")
        return value


def from_hub(config: Mapping[str, Value]) -> LlamaConfig:
    """From the fields of a public `config.json`."""
    family = _family(config)
    fields = _Fields(config)
    if config.get("hidden_act", "silu") != "silu":
        raise WeightsError(f"hidden_act {config['hidden_act']!r} is not supported (silu)")
    if config.get("use_sliding_window") is True:
        raise WeightsError("use_sliding_window true is not supported")
    if config.get("quantization_config") is not None:
        raise WeightsError("quantization_config is not supported: give the unquantised checkpoint or a GGUF")
    heads, hidden, layers = (
        fields.integer(name) for name in ("num_attention_heads", "hidden_size", "num_hidden_layers")
    )
    head_dim = fields.integer("head_dim", hidden // heads)
    bias = fields.flag("attention_bias", False)
    return LlamaConfig(
        family=family,
        vocab=fields.integer("vocab_size"),
        hidden=hidden,
        inner=fields.integer("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=fields.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        eps=fields.number("rms_norm_eps", 1e-6),
        rope=parse_rope(config, head_dim),
        max_positions=fields.integer("max_position_embeddings", 2048),
        tied=fields.flag("tie_word_embeddings", False),
        qkv_bias=True if family == "qwen2" else bias,
        output_bias=False if family == "qwen2" else bias,
        mlp_bias=fields.flag("mlp_bias", False),
        qk_norm=family in ("qwen3", "qwen3_moe"),
        moe=_moe(config, fields, layers) if family == "qwen3_moe" else None,
        bos=config["bos_token_id"] if isinstance(config.get("bos_token_id"), int) else None,  # type: ignore[arg-type]
        eos=_ids(config.get(_EOS), _EOS),
    )


def _family(config: Mapping[str, Value]) -> Family:
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        raise WeightsError(f"architectures {architectures!r} is not supported ({', '.join(_ARCHITECTURES)})")
    return _ARCHITECTURES[name]


def _moe(config: Mapping[str, Value], fields: _Fields, layers: int) -> MoEConfig:
    step = fields.integer("decoder_sparse_step", 1)
    only = _ids(config.get("mlp_only_layers"), "mlp_only_layers")
    plain = {layer for layer in range(layers) if layer in only or (layer + 1) % step}
    return MoEConfig(
        experts=fields.integer("num_experts"),
        top_k=fields.integer("num_experts_per_tok"),
        inner=fields.integer("moe_intermediate_size"),
        normalise=fields.flag("norm_topk_prob", False),
        dense_layers=frozenset(plain),
    )


def _ids(value: Value, field: str) -> tuple[int, ...]:
    match value:
        case None:
            return ()
        case bool():
            pass
        case int():
            return (value,)
        case list() if all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            return tuple(value)
    raise WeightsError(f"{field} must be an integer or a list of integers, not {value!r}")


def from_gguf(file: GgufFile) -> LlamaConfig:
    """From the fields of a GGUF (`{architecture}.…`, `tokenizer.ggml.…`)."""
    name = file.text("general.architecture")
    if name not in _GGUF_ARCHITECTURES:
        raise WeightsError(f"general.architecture {name!r} is not supported ({', '.join(_GGUF_ARCHITECTURES)})")
    family = _GGUF_ARCHITECTURES[name]
    fields = _Fields(file.fields, f"{name}.")
    heads, hidden = fields.integer("attention.head_count"), fields.integer("embedding_length")
    head_dim = fields.integer("attention.key_length", hidden // heads)
    if fields.integer("rope.dimension_count", head_dim) != head_dim:
        raise WeightsError(f"{name}.rope.dimension_count differs from the head's {head_dim} channels")
    moe = None
    if family == "qwen3_moe":
        moe = MoEConfig(
            experts=fields.integer("expert_count"),
            top_k=fields.integer("expert_used_count"),
            inner=fields.integer("expert_feed_forward_length"),
            normalise=True,
        )
    eos = {_field_id(file, f"tokenizer.ggml.{which}_token_id") for which in ("eos", "eot")}
    return LlamaConfig(
        family=family,
        vocab=file.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in file.tensors else 0,
        hidden=hidden,
        inner=fields.integer("feed_forward_length"),
        layers=fields.integer("block_count"),
        heads=heads,
        kv_heads=fields.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope=_gguf_rope(file, name, head_dim),
        max_positions=fields.integer("context_length"),
        tied="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in file.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        moe=moe,
        bos=_field_id(file, "tokenizer.ggml.bos_token_id"),
        eos=tuple(sorted(token for token in eos if token is not None)),
    )


def _field_id(file: GgufFile, field: str) -> int | None:
    value = file.fields.get(field)
    return value if isinstance(value, int) else None


def _gguf_rope(file: GgufFile, name: str, head_dim: int) -> RopeConfig:
    """llama3 scaling comes as a tensor of divisors (`rope_freqs.weight`), which the weights hold."""
    fields = _Fields(file.fields, f"{name}.rope.")
    theta = fields.number("freq_base", 10_000.0)
    match file.fields.get(f"{name}.rope.scaling.type"):
        case None | "none":
            return RopeConfig(head_dim, theta)
        case "linear":
            return RopeConfig(head_dim, theta, "linear", factor=fields.number("scaling.factor"))
        case other:
            raise WeightsError(f"{name}.rope.scaling.type {other!r} is not supported (none, linear)")
