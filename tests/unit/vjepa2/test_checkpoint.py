"""Reading checkpoints: both public layouts, sizes, and what is wrong with one."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.vjepa2.config import (
    RELEASED_WORLD,
    TINY_WORLD,
    Clip,
    Transformer,
    VideoConfig,
    read_video_config,
    read_world_config,
)
from models.vjepa2.network import Encoder
from models.vjepa2.nodes import imagining, planning
from models.vjepa2.nodes.checkpoints import World, video, world
from models.vjepa2.predictor import MaskedPredictor
from models.vjepa2.weights import Drawn, read_weights
from models.vjepa2.world import ActionPredictor
from mstar.errors import WeightsError

DATA = Path(__file__).parents[2] / "data"


class Counted:
    """Weights without memory, that count what is taken."""

    dtype = torch.float32

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        tensor = torch.empty(shape, device="meta")
        self.sizes[name] = tensor.numel()
        return tensor

    @property
    def millions(self) -> float:
        return round(sum(self.sizes.values()) / 1e6, 1)


@pytest.mark.parametrize(
    ("encoder", "millions"),
    [
        (Transformer(1024, 24, 16, 4096), 303.9),
        (Transformer(1280, 32, 16, 5120), 631.6),
        (Transformer(1408, 40, 22, 6144), 1012.2),
    ],
)
def test_released_encoders_have_the_published_sizes(encoder: Transformer, millions: float) -> None:
    clip = Clip(256, 16, 2, 64)
    config = VideoConfig(clip, encoder, Transformer(384, 12, 12, 1536), mask_tokens=10)
    counted = Counted()
    Encoder(counted, clip, encoder)
    assert counted.millions == millions
    counted = Counted()
    MaskedPredictor(counted, config)
    assert 22.1 <= counted.millions <= 22.4


def test_the_released_world_has_the_published_size() -> None:
    counted = Counted()
    ActionPredictor(counted, RELEASED_WORLD)
    assert len(counted.sizes) == 300 - 2  # but for the encoder of extrinsics
    assert counted.millions == 305.2


def test_a_file_of_meta_and_a_hub_folder_hold_the_same(tmp_path: Path) -> None:
    """The hub's tensors written as Meta does: other names, joined query, key and value, mask tokens one by one."""
    hub = load_file(DATA / "vjepa2" / "model.safetensors")
    parts: dict[str, dict[str, Tensor]] = {
        "encoder": {"module.backbone.pos_embed": torch.zeros(1, 4, 60)},
        "predictor": {},
    }
    for part, prefix, blocks in (
        ("encoder", "module.backbone.", "blocks"),
        ("predictor", "module.backbone.", "predictor_blocks"),
    ):
        for n in range(3):
            for name in ("norm1", "norm2", "mlp.fc1", "mlp.fc2", "attention.proj"):
                for kind in ("weight", "bias"):
                    meta = name.replace("attention", "attn")
                    parts[part][f"{prefix}{blocks}.{n}.{meta}.{kind}"] = hub[f"{part}.layer.{n}.{name}.{kind}"]
            for kind in ("weight", "bias"):
                three = [hub[f"{part}.layer.{n}.attention.{name}.{kind}"] for name in ("query", "key", "value")]
                parts[part][f"{prefix}{blocks}.{n}.attn.qkv.{kind}"] = torch.cat(three)
    for kind in ("weight", "bias"):
        parts["encoder"][f"module.backbone.patch_embed.proj.{kind}"] = hub[
            f"encoder.embeddings.patch_embeddings.proj.{kind}"
        ]
        parts["encoder"][f"module.backbone.norm.{kind}"] = hub[f"encoder.layernorm.{kind}"]
        parts["predictor"][f"module.backbone.predictor_norm.{kind}"] = hub[f"predictor.layernorm.{kind}"]
        parts["predictor"][f"module.backbone.predictor_proj.{kind}"] = hub[f"predictor.proj.{kind}"]
        embed = hub[f"predictor.embeddings.predictor_embeddings.{kind}"]
        parts["predictor"][f"module.backbone.predictor_embed.{kind}"] = embed
    for n, mask in enumerate(hub["predictor.embeddings.mask_tokens"]):
        parts["predictor"][f"module.backbone.mask_tokens.{n}"] = mask
    torch.save({**parts, "epoch": 3}, tmp_path / "vitl.pt")
    ours, theirs = read_weights(tmp_path / "vitl.pt"), read_weights(DATA / "vjepa2")
    assert set(ours._tensors) == set(theirs._tensors)
    for name, tensor in theirs._tensors.items():
        assert torch.equal(ours._tensors[name], tensor), name


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("/nonexistent/evil"),))


def test_pickled_code_is_not_run(tmp_path: Path) -> None:
    with (tmp_path / "evil.pt").open("wb") as file:
        pickle.dump({"encoder": Evil()}, file)
    torch.save({"encoder": {"a": Evil()}}, tmp_path / "zip.pt")
    for name in ("evil.pt", "zip.pt"):
        with pytest.raises(WeightsError, match=name):
            read_weights(tmp_path / name)


@pytest.mark.parametrize("content", [None, b"", b"not a checkpoint"])
@pytest.mark.parametrize("name", ["x.pt", "x.safetensors"])
def test_a_missing_or_damaged_file_is_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=name):
        read_weights(tmp_path / name)


def world_folder(tmp_path: Path, **changed: Any) -> Path:
    shutil.copyfile(DATA / "vjepa2_ac" / "vjepa2-ac.pt", tmp_path / "vjepa2-ac.pt")
    config = json.loads((DATA / "vjepa2_ac" / "config.json").read_text())
    for name, value in changed.items():
        part, _, field = name.rpartition("__")
        (config[part] if part else config)[field] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def whole(found: World) -> tuple[object, ...]:
    """All parts, read."""
    return found.encoder, found.predictor, found.decoder


def test_a_part_that_no_node_needs_is_not_read(tmp_path: Path) -> None:
    settings = {"world": str(world_folder(tmp_path, predictor__depth=2))}
    planner = (planning.look, planning.aim, planning.sample, planning.score, planning.improve)
    for make in (*planner, imagining.frames, imagining.course, imagining.frame_encoder):
        make(settings)
    with pytest.raises(WeightsError, match="no use for"):
        imagining.candidates(settings)


def test_a_world_is_read_from_its_folder_or_its_file(tmp_path: Path) -> None:
    folder = world_folder(tmp_path, planner={"samples": 96, "objective": "mean"})
    by_folder, by_file = world({"world": str(folder)}), world({"world": str(folder / "vjepa2-ac.pt")})
    assert by_folder.config == by_file.config
    assert (by_folder.config.planner.samples, by_folder.config.planner.objective) == (96, "mean")
    assert by_folder.config.clip.steps == 4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "vjepa2"}, "model_type"),
        ({"motion": "walk"}, "motion"),
        ({"use_silu": True}, "SwiGLU"),
        ({"predictor__depth": 2}, "no use for"),
        ({"predictor__depth": 4}, "missing"),
        ({"predictor__predictor_embed_dim": 48}, "asks for"),
        ({"encoder__depth": 0}, "depth"),
        ({"planner": {"sample": 3}}, "sample"),
    ],
)
def test_a_checkpoint_and_a_config_that_do_not_fit_are_refused(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(WeightsError, match=said):
        whole(world({"world": str(world_folder(tmp_path, **changed))}))


def test_a_file_without_a_config_is_the_released_world(tmp_path: Path) -> None:
    assert read_world_config(tmp_path / "vjepa2-ac-vitg.pt") == RELEASED_WORLD
    with pytest.raises(WeightsError, match=r"config\.json"):
        read_world_config(tmp_path)


def test_a_hub_config_of_another_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(WeightsError, match="llama"):
        read_video_config(tmp_path)


def test_without_a_checkpoint_the_setting_is_named() -> None:
    with pytest.raises(WeightsError, match=r"vjepa2\.video"):
        video({})
    with pytest.raises(WeightsError, match=r"vjepa2\.world"):
        world({"tiny": "0"})


def test_drawn_weights_are_the_same_every_time() -> None:
    one, other = (ActionPredictor(Drawn(4), TINY_WORLD) for _ in range(2))
    assert torch.equal(one._layers[1]._qkv._weight, other._layers[1]._qkv._weight)
    assert not torch.equal(one._layers[0]._qkv._weight, one._layers[1]._qkv._weight)


def test_a_folder_with_several_checkpoints_is_ambiguous(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        save_file({"x": torch.zeros(1)}, tmp_path / name)
    with pytest.raises(WeightsError, match="2 checkpoint files"):
        read_weights(tmp_path)
