"""Checkpoints written on the spot: shards, damaged files, GGUF in float and in blocks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.blocks.quantise import Grouped4, Grouped8, dense
from models.blocks.rope import inverse_frequencies
from models.blocks.rope_config import RopeConfig
from models.llama.checkpoint import open_checkpoint
from models.llama.config import read_config
from models.llama.gguf_file import GgufFile
from models.llama.nodes import load_network
from models.llama.weights import GgufWeights, HubWeights
from mstar.errors import WeightsError
from tests.parity.dense_attention import DenseCache

DATA = Path(__file__).parents[2] / "data" / "llama"
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}
TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """Rows of each head so that rotary pairs are neighbours, as converters write llama checkpoints."""
    pairs: Tensor = weight.unflatten(0, (heads, 2, -1)).transpose(1, 2)
    return pairs.reshape(weight.shape)


def gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.{kind}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest]}.{kind}"


def write_gguf(path: Path, case: str) -> Path:
    """The case's checkpoint as a float32 GGUF."""
    config = read_config(open_checkpoint(DATA / case))
    name = config.family.replace("_", "")
    writer = gguf.GGUFWriter(str(path), name)
    for field, value in (
        ("block_count", config.layers),
        ("context_length", config.max_positions),
        ("embedding_length", config.hidden),
        ("feed_forward_length", config.inner),
        ("attention.head_count", config.heads),
        ("attention.head_count_kv", config.kv_heads),
        ("attention.key_length", config.head_dim),
        ("expert_count", config.moe.experts if config.moe else 0),
        ("expert_used_count", config.moe.top_k if config.moe else 0),
        ("expert_feed_forward_length", config.moe.inner if config.moe else 0),
    ):
        writer.add_uint32(f"{name}.{field}", value)
    writer.add_float32(f"{name}.attention.layer_norm_rms_epsilon", config.eps)
    writer.add_float32(f"{name}.rope.freq_base", config.rope.theta)
    tensors = load_file(DATA / case / "model.safetensors")
    experts: dict[str, list[Tensor]] = {}
    for key in sorted(tensors, key=lambda k: (len(k), k)):
        weight = tensors[key]
        if ".experts." in key:
            _, _, layer, _, _, _, kind, _ = key.split(".")
            experts.setdefault(f"blk.{layer}.ffn_{kind.removesuffix('_proj')}_exps.weight", []).append(weight)
            continue
        if config.family == "llama" and ".q_proj." in key:
            weight = interleaved(weight, config.heads)
        elif config.family == "llama" and ".k_proj." in key:
            weight = interleaved(weight, config.kv_heads)
        writer.add_tensor(gguf_name(key), weight.numpy())
    if config.rope.kind == "llama3":  # converters write the divisors of the frequencies
        plain = inverse_frequencies(RopeConfig(config.rope.dim, config.rope.theta))
        writer.add_tensor("rope_freqs.weight", (plain / inverse_frequencies(config.rope)).numpy())
    for key, parts in experts.items():
        writer.add_tensor(key, torch.stack(parts).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("case", ["smollm2", "llama3", "qwen2", "qwen3", "qwen3_moe"])
def test_a_gguf_computes_what_its_hub_folder_computes(tmp_path: Path, case: str) -> None:
    ids = load_file(DATA / case / "inputs.safetensors")["prompt_3"]

    def logits(path: Path) -> Tensor:
        network = load_network(path, "float32")
        attention = DenseCache().prompt("a", len(ids))
        return network.logits(network.forward(ids, attention.positions, attention))

    got, wanted = logits(write_gguf(tmp_path / "model.gguf", case)), logits(DATA / case)
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)


def blocks(tmp_path: Path, kind: gguf.GGMLQuantizationType) -> tuple[GgufWeights, np.ndarray]:
    """A GGUF with one [64, 96] matrix in blocks of a type, and its values by the package's own code."""
    values = np.random.default_rng(3).standard_normal((64, 96)).astype(np.float32)
    raw = gguf.quantize(values, kind)
    writer = gguf.GGUFWriter(str(tmp_path / "w.gguf"), "qwen2")
    writer.add_tensor("output.weight", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    config = read_config(open_checkpoint(DATA / "qwen2"))
    return GgufWeights(GgufFile.read(tmp_path / "w.gguf"), config), gguf.dequantize(raw, kind)


@pytest.mark.parametrize(
    ("name", "form"), [("Q4_0", Grouped4), ("Q4_1", Grouped4), ("Q8_0", Grouped8), ("Q5_1", Tensor), ("BF16", Tensor)]
)
def test_blocks_keep_their_values(tmp_path: Path, name: str, form: type) -> None:
    weights, values = blocks(tmp_path, gguf.GGMLQuantizationType[name])
    stored = weights.take("lm_head.weight", (64, 96))
    assert isinstance(stored, form)
    assert torch.equal(dense(stored), torch.from_numpy(values))


def shards(folder: Path, case: str) -> Path:
    """The case's checkpoint in two shards with an index."""
    folder.mkdir()
    (folder / "config.json").write_bytes((DATA / case / "config.json").read_bytes())
    tensors = load_file(DATA / case / "model.safetensors")
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in parts.items():
        save_file({name: tensors[name] for name in held}, folder / file)
    index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    whole, cut = HubWeights(DATA / "qwen2"), HubWeights(shards(tmp_path / "cut", "qwen2"))
    name = "model.layers.1.self_attn.q_proj.bias"
    assert torch.equal(cut.take(name, (64,)), whole.take(name, (64,)))
    load_network(tmp_path / "cut", "float32")


def test_errors_are_one_line_with_path_and_cause(tmp_path: Path) -> None:
    folder = shards(tmp_path / "cut", "qwen2")
    (folder / "model-00002-of-00002.safetensors").unlink()
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: HubWeights(folder), r"model-00002-of-00002\.safetensors: missing"),
        (lambda: HubWeights(tmp_path), r"model\.safetensors: missing"),
        (lambda: HubWeights(DATA / "qwen2").take("model.x", (1,)), r"qwen2: tensor model\.x is missing"),
        (lambda: HubWeights(DATA / "qwen2").take("model.norm.weight", (3,)), r"shape \(64,\).*asks for \(3,\)"),
    ]
    for attempt, words in cases:
        with pytest.raises(WeightsError, match=words) as raised:
            attempt()
        assert "\n" not in str(raised.value)


def test_a_cut_safetensors_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((DATA / "qwen2" / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(WeightsError, match=r"model\.safetensors: "):
        HubWeights(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.5, 0.99])
def test_a_cut_gguf_is_named(tmp_path: Path, share: float) -> None:
    content = write_gguf(tmp_path / "model.gguf", "qwen2").read_bytes()
    (tmp_path / "model.gguf").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(WeightsError, match=r"model\.gguf: "):
        GgufFile.read(tmp_path / "model.gguf")


def test_another_file_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04 and more than that")
    with pytest.raises(WeightsError, match="not a GGUF"):
        open_checkpoint(tmp_path)


def test_a_gguf_of_another_architecture_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(WeightsError, match=r"general\.architecture 'mamba'"):
        read_config(open_checkpoint(tmp_path))
