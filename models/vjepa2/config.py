"""Sizes of V-JEPA 2 networks, and where they are written (torch-free).

Two public layouts: a hub folder (`config.json` with `model_type: vjepa2`, `model.safetensors`), and Meta's `.pt` file,
which holds no sizes: a `config.json` beside it says them (`model_type: vjepa2_ac`), else they are those of the released
V-JEPA 2-AC (ViT-g encoder, 24 predictor layers).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from models.vjepa2.planning import Planner
from mstar.errors import WeightsError

EPS = 1e-6
"""Epsilon of all layer norms."""
PAGES = 2048
"""Of the K/V memory of imagined frames, on any device: how many candidates a plan may have follows from it."""


@dataclass(frozen=True, slots=True)
class Transformer:
    """A stack of pre-norm layers."""

    width: int
    depth: int
    heads: int
    hidden: int  # inner width of the feed-forward layers

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


@dataclass(frozen=True, slots=True)
class Clip:
    """The pictures a network looks at: square, cut into patches; frames are taken in tubelets."""

    size: int  # pixels a side
    patch: int
    tubelet: int
    frames: int  # most frames of a clip in training

    @property
    def grid(self) -> int:
        """Patches a side."""
        return self.size // self.patch

    @property
    def patches(self) -> int:
        """Tokens of one frame or tubelet."""
        return self.grid**2

    @property
    def steps(self) -> int:
        """Most tubelets of a clip."""
        return self.frames // self.tubelet


@dataclass(frozen=True, slots=True)
class VideoConfig:
    """V-JEPA 2: encoder, masked predictor, and where there is one the attentive pooler of a classifier."""

    clip: Clip
    encoder: Transformer
    predictor: Transformer
    mask_tokens: int
    pooler_layers: int = 0
    labels: tuple[str, ...] = ()


Motion = Literal["pose", "add"]
"""How an action moves the state: `pose` = change of (x, y, z, Euler xyz, gripper), `add` = the sum."""


@dataclass(frozen=True, slots=True)
class WorldConfig:
    """V-JEPA 2-AC: an encoder of single frames, and a predictor of the next one from actions and states."""

    clip: Clip
    encoder: Transformer
    predictor: Transformer
    action: int = 7
    state: int = 7
    motion: Motion = "pose"
    planner: Planner = field(default_factory=Planner)
    rate: float = 4.0  # actions per second; that of the clips which the released model was trained on
    decoder: int = 0  # numbers of a place in what makes pictures of tokens; 0 = nothing does

    @property
    def frame_tokens(self) -> int:
        """Tokens of one frame in the predictor: action, state, patches."""
        return self.clip.patches + 2


RELEASED_WORLD = WorldConfig(
    clip=Clip(size=256, patch=16, tubelet=2, frames=64),
    encoder=Transformer(1408, 40, 22, 6144),
    predictor=Transformer(1024, 24, 16, 4096),
)
"""`vjepa2-ac-vitg.pt`."""

TINY_VIDEO = VideoConfig(
    clip=Clip(size=64, patch=16, tubelet=2, frames=8),
    encoder=Transformer(48, 2, 2, 96),
    predictor=Transformer(44, 2, 2, 88),
    mask_tokens=2,
    pooler_layers=1,
    labels=("still", "moving", "gone"),
)
TINY_WORLD = WorldConfig(
    clip=Clip(size=64, patch=16, tubelet=2, frames=64),
    encoder=Transformer(48, 2, 2, 96),
    predictor=Transformer(52, 2, 2, 104),
    planner=Planner(samples=24, iterations=3, topk=6),
    decoder=2,
)
"""Sizes for random weights: what the family looks like without a checkpoint."""


def read_video_config(path: Path) -> VideoConfig:
    """Sizes of a hub folder. Raises WeightsError: no config, another model, or a variant that is not built."""
    source = _read(path / "config.json")
    if source.get("model_type") != "vjepa2":
        raise WeightsError(f"{path / 'config.json'}: model_type is {source.get('model_type')!r}, expected 'vjepa2'")
    take = _Fields(path / "config.json", source)
    width, narrow = take.int("hidden_size"), take.int("pred_hidden_size")
    if source.get("use_SiLU") or source.get("hidden_act", "gelu") != "gelu":
        raise WeightsError(f"{path / 'config.json'}: only the GELU feed-forward layer of the released models is built")
    labels = source.get("id2label") or {}
    return VideoConfig(
        clip=Clip(take.int("crop_size"), take.int("patch_size"), take.int("tubelet_size"), take.int("frames_per_clip")),
        encoder=Transformer(
            width,
            take.int("num_hidden_layers"),
            take.int("num_attention_heads"),
            int(width * take.number("mlp_ratio", 4.0)),
        ),
        predictor=Transformer(
            narrow,
            take.int("pred_num_hidden_layers"),
            take.int("pred_num_attention_heads"),
            int(narrow * take.number("pred_mlp_ratio", 4.0)),
        ),
        mask_tokens=take.int("pred_num_mask_tokens"),
        pooler_layers=int(take.number("num_pooler_layers", 3)),
        labels=tuple(str(labels[key]) for key in sorted(labels, key=int)),
    )


SHIPPED = Path(__file__).parent / "worlds"
"""Small world models that come with the package: a folder each."""


def world_path(name: str) -> Path:
    """The setting `world`: the name of a shipped world, or a path."""
    return SHIPPED / name if (SHIPPED / name / "config.json").is_file() else Path(name)


def read_world_config(path: Path) -> WorldConfig:
    """Sizes of a V-JEPA 2-AC checkpoint: a folder, or a file with or without a `config.json` beside it."""
    folder = path if path.is_dir() else path.parent
    if not (folder / "config.json").is_file():
        if path.is_dir():
            raise WeightsError(f"{folder / 'config.json'}: missing")
        return RELEASED_WORLD
    source = _read(folder / "config.json")
    if source.get("model_type") != "vjepa2_ac":
        kind = source.get("model_type")
        raise WeightsError(f"{folder / 'config.json'}: model_type is {kind!r}, expected 'vjepa2_ac'")
    encoder = _Fields(folder / "config.json", source.get("encoder", {}))
    predictor = _Fields(folder / "config.json", source.get("predictor", {}))
    if source.get("use_silu") or predictor.source.get("use_extrinsics"):
        raise WeightsError(f"{folder / 'config.json'}: neither SwiGLU layers nor extrinsics are built")
    action = predictor.int("action_embed_dim")
    motion = source.get("motion", "pose")
    if motion not in {"pose", "add"} or (motion == "pose" and action != 7):
        raise WeightsError(f"{folder / 'config.json'}: motion {motion!r} of {action} dimensions is not known")
    return WorldConfig(
        clip=Clip(
            _side(encoder.source.get("img_size")),
            encoder.int("patch_size"),
            encoder.int("tubelet_size"),
            predictor.int("num_frames"),
        ),
        encoder=_transformer(encoder, "embed_dim"),
        predictor=_transformer(predictor, "predictor_embed_dim"),
        action=action,
        state=int(predictor.number("state_embed_dim", action)),
        motion=motion,
        planner=replace(Planner(), **_planner(folder / "config.json", source.get("planner", {}))),
        rate=_Fields(folder / "config.json", source).number("rate", 4.0),
        decoder=_Fields(folder / "config.json", source).int("decoder") if source.get("decoder") else 0,
    )


def _planner(path: Path, source: Mapping[str, Any]) -> dict[str, Any]:
    known = {name for name in Planner.__slots__ if name not in {"axis", "close_gripper"}}
    if not source.keys() <= known:
        raise WeightsError(f"{path}: planner has no {min(source.keys() - known)}")
    return dict(source)


def _transformer(fields: _Fields, width: str) -> Transformer:
    size = fields.int(width)
    hidden = int(size * fields.number("mlp_ratio", 4.0))
    return Transformer(size, fields.int("depth"), fields.int("num_heads"), hidden)


def _side(size: Any) -> int:
    """Pixels a side, of a number or a pair."""
    return int(size[0]) if isinstance(size, list) else int(size)


@dataclass(frozen=True, slots=True)
class _Fields:
    path: Path
    source: Mapping[str, Any]

    def int(self, name: str) -> int:
        value = self.source.get(name)
        if not isinstance(value, int) or value < 1:
            raise WeightsError(f"{self.path}: {name} is {value!r}, expected a number from 1")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.source.get(name, default)
        if not isinstance(value, int | float) or value <= 0:
            raise WeightsError(f"{self.path}: {name} is {value!r}, expected a positive number")
        return value


def _read(path: Path) -> Mapping[str, Any]:
    try:
        source = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WeightsError(f"{path}: missing") from None
    except (OSError, ValueError) as cause:
        raise WeightsError(f"{path}: {cause}") from None
    if not isinstance(source, dict):
        raise WeightsError(f"{path}: not an object")
    return source
