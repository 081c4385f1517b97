from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from models.blocks.rope_config import RopeConfig, parse_rope
from models.llama.checkpoint import open_checkpoint
from models.llama.config import from_hub, read_config
from mstar.errors import WeightsError
from mstar.tensors import Value

DATA = Path(__file__).parents[2] / "data" / "llama"


def fields(case: str, **changed: Value) -> Mapping[str, Value]:
    return {**json.loads((DATA / case / "config.json").read_text()), **changed}


def test_old_and_new_rope_fields_mean_the_same() -> None:
    old = fields("llama3")
    scaling = old["rope_scaling"]
    assert isinstance(scaling, dict)
    new = {k: v for k, v in old.items() if k not in ("rope_scaling", "rope_theta")}
    new["rope_parameters"] = {**scaling, "rope_theta": old["rope_theta"]}
    assert from_hub(new).rope == from_hub(old).rope
    assert from_hub(old).rope == RopeConfig(16, 500_000.0, "llama3", 32.0, 1.0, 4.0, 32)


def test_a_rope_type_may_be_called_type() -> None:
    assert parse_rope({"rope_scaling": {"type": "linear", "factor": 2}}, 8) == RopeConfig(8, 10_000.0, "linear", 2.0)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "architectures"),
        ({"architectures": None}, "architectures"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling.rope_type"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor"),
        ({"num_hidden_layers": "3"}, "num_hidden_layers"),
        ({"vocab_size": None}, "vocab_size"),
        ({"eos_token_id": "</s>"}, "eos_token_id"),
    ],
)
def test_what_is_not_known_is_named(changed: Mapping[str, Value], field: str) -> None:
    with pytest.raises(WeightsError, match=field.replace(".", r"\.")):
        from_hub({**fields("qwen2"), **changed})


def test_the_end_of_turn_comes_from_the_generation_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(fields("llama3")))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9], "temperature": 0.6}')
    assert read_config(open_checkpoint(tmp_path)).eos == (7, 9)


def test_expert_layers_follow_step_and_exceptions() -> None:
    config = from_hub(fields("qwen3_moe", decoder_sparse_step=2, mlp_only_layers=[1], num_hidden_layers=4))
    assert config.moe is not None
    assert config.moe.dense_layers == {0, 1, 2}


@pytest.mark.parametrize("content", ["{", "[]", '"x"'])
def test_a_broken_config_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(WeightsError, match=r"config\.json"):
        read_config(open_checkpoint(tmp_path))


def test_a_folder_without_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no config\.json and 0"):
        open_checkpoint(tmp_path)
    with pytest.raises(WeightsError, match="no such"):
        open_checkpoint(tmp_path / "absent")
