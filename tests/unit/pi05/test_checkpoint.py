"""Checkpoints that are whole, otherwise laid out, or damaged."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.pi05.config import CAMERAS, TINY, VARIANTS, from_fields, read_config
from models.pi05.network import Expert, Eyes, Prefix
from models.pi05.nodes.policy import policy, tensors
from models.pi05.weights import read_weights
from models.siglip.config import SO400M_224
from mstar.errors import WeightsError
from mstar.tensors import Value

DATA = Path(__file__).parents[2] / "data" / "pi05"


def test_a_public_config_names_variants() -> None:
    features: dict[str, Value] = {f"observation.images.{name}": {} for name in (*CAMERAS[:2], "empty_camera_0")}
    config = from_fields({"type": "pi05", "input_features": {"observation.state": {}, **features}})
    assert (config.prefix, config.expert) == (VARIANTS["gemma_2b"], VARIANTS["gemma_300m"])
    assert config.vision == SO400M_224
    assert config.vision.tokens == 256
    assert config.cameras == CAMERAS[:2]
    assert (config.horizon, config.action_dim, config.max_tokens, config.vocab) == (50, 32, 200, 257_152)


class Asked:
    """Tensors without values; notes what was asked for."""

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}

    def __contains__(self, name: object) -> bool:
        return not str(name).endswith("embed_tokens.weight")

    def take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        self.shapes[name] = shape
        return torch.empty(shape, device="meta")


def test_the_published_policy_has_three_thousand_million_weights() -> None:
    config, counts = from_fields({"type": "pi05"}), []
    for network in (Eyes, Prefix, Expert):
        asked = Asked()
        network(config, asked)
        counts.append((len(asked.shapes), sum(math.prod(shape) for shape in asked.shapes.values())))
    assert counts == [(439, 414_803_696), (164, 2_508_531_712), (208, 430_098_464)]


def test_every_tensor_of_a_checkpoint_is_used_but_the_experts_vocabulary() -> None:
    asked = Asked()
    for network in (Eyes, Prefix, Expert):
        network(read_config(DATA), asked)
    stored = {name: tuple(tensor.shape) for name, tensor in load_file(DATA / "model.safetensors").items()}
    del stored["paligemma_with_expert.gemma_expert.lm_head.weight"]
    assert asked.shapes == stored


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"paligemma_variant": "gemma_7b"}, "paligemma_variant 'gemma_7b'"),
        ({"paligemma_variant": "gemma_300m", "tiny": {"action_expert": {"width": 8}}}, "depth must be"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"chunk_size": True}, "chunk_size"),
        ({"min_period": "x"}, "min_period"),
        ({"input_features": []}, "input_features"),
    ],
)
def test_a_wrong_field_is_named(fields: Mapping[str, Value], named: str) -> None:
    with pytest.raises(WeightsError, match=named):
        from_fields(fields)


@pytest.mark.parametrize(
    ("content", "named"), [("", "config.json"), ("[]", "not 'pi05'"), ('{"type": "pi0"}', "'pi0'")]
)
def test_a_config_of_something_else_is_refused(tmp_path: Path, content: str, named: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(WeightsError, match=named):
        read_config(tmp_path)


def test_no_config(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"config\.json: missing"):
        read_config(tmp_path)


def test_names_may_begin_with_model_and_the_embedding_may_have_its_own_name(tmp_path: Path) -> None:
    stored = load_file(DATA / "model.safetensors")
    head = "paligemma_with_expert.paligemma.lm_head.weight"
    stored["paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"] = stored.pop(head)
    save_file({f"model.{name}": tensor for name, tensor in stored.items()}, tmp_path / "model.safetensors")
    config = read_config(DATA)
    ids = torch.arange(5)
    assert torch.equal(Prefix(config, read_weights(tmp_path)).embed(ids), Prefix(config, read_weights(DATA)).embed(ids))
    picture = torch.zeros(1, 3, 42, 42)
    assert torch.equal(Eyes(config, read_weights(tmp_path))(picture), Eyes(config, read_weights(DATA))(picture))


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    stored = load_file(DATA / "model.safetensors")
    shutil.copy(DATA / "config.json", tmp_path)
    stored["action_in_proj.weight"] = torch.zeros(3, 3)
    del stored["paligemma_with_expert.paligemma.model.multi_modal_projector.linear.bias"]
    save_file(stored, tmp_path / "model.safetensors")
    config, weights = read_config(tmp_path), read_weights(tmp_path)
    with pytest.raises(WeightsError, match=r"multi_modal_projector\.linear\.bias is missing"):
        Eyes(config, weights)
    with pytest.raises(WeightsError, match=r"action_in_proj\.weight has shape \(3, 3\)"):
        Expert(config, weights)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((DATA / "model.safetensors").read_bytes()[:2000])
    with pytest.raises(WeightsError, match=r"model\.safetensors"):
        read_weights(tmp_path)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "needs the setting `checkpoint`"),
        ({"checkpoint": "/nowhere"}, "no such folder"),
        ({"checkpoint": "x", "tiny": True}, "or else"),
        ({"tiny": True, "robot": "r2d2"}, "droid, libero, aloha"),
        ({"checkpoint": str(DATA)}, "the setting `statistics`"),
    ],
)
def test_settings_that_name_no_policy(settings: Mapping[str, Value], named: str) -> None:
    with pytest.raises(WeightsError, match=named):
        policy(settings)


def test_statistics_must_fit_robot_and_policy(tmp_path: Path) -> None:
    def stats(state: int, actions: int) -> Mapping[str, Value]:
        one = {n: {"q01": [0.0] * size, "q99": [1.0] * size} for n, size in (("state", state), ("actions", actions))}
        (tmp_path / "s.json").write_text(json.dumps(one))
        return {"tiny": True, "statistics": str(tmp_path / "s.json"), "robot": "libero"}

    assert policy(stats(8, 7)).channels == 7
    with pytest.raises(WeightsError, match="6 action channels, the robot takes 7"):
        policy(stats(8, 6))
    with pytest.raises(WeightsError, match="33 state values"):
        policy(stats(33, 7))
    with pytest.raises(WeightsError, match="33 action channels"):
        policy(stats(8, 33))


def test_the_tiny_policy_is_drawn_once_for_all() -> None:
    first, second = (Prefix(TINY, tensors({"tiny": True})).embed(torch.arange(3)) for _ in range(2))
    assert torch.equal(first, second)
