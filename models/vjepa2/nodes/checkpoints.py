"""The family's networks, each read once a process however many nodes use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from models.blocks.precision import device_of, precision
from models.vjepa2.config import (
    TINY_VIDEO,
    TINY_WORLD,
    VideoConfig,
    WorldConfig,
    read_video_config,
    read_world_config,
    world_path,
)
from models.vjepa2.model import given
from models.vjepa2.network import Encoder
from models.vjepa2.pictures import PixelDecoder
from models.vjepa2.predictor import Classifier, MaskedPredictor
from models.vjepa2.weights import Drawn, Loaded, Weights, read_weights
from models.vjepa2.world import ActionPredictor
from mstar.errors import WeightsError
from mstar.tensors import Value

TINY_SEED = 1


@dataclass(frozen=True, slots=True)
class Video:
    """V-JEPA 2."""

    config: VideoConfig
    encoder: Encoder
    predictor: MaskedPredictor


@dataclass(frozen=True, slots=True)
class World:
    """V-JEPA 2-AC; encoder and predictor come from one file."""

    config: WorldConfig
    encoder: Encoder
    predictor: ActionPredictor
    decoder: PixelDecoder | None


def video(settings: Mapping[str, Value]) -> Video:
    """The setting `video`: a hub folder. Raises WeightsError."""
    return _video(_path(settings, "video"), *_place(settings))


def world(settings: Mapping[str, Value]) -> World:
    """The setting `world`: a shipped world's name, or a `.pt` or `.safetensors` file or its folder.

    Raises WeightsError.
    """
    path = _path(settings, "world")
    return _world(None if path is None else world_path(str(path)), *_place(settings))


def classifier(settings: Mapping[str, Value]) -> Classifier:
    """The setting `classifier`: a hub folder of a video classifier. Raises WeightsError."""
    return _classifier(_path(settings, "classifier"), *_place(settings))


def classifier_encoder(settings: Mapping[str, Value]) -> Encoder:
    """The encoder that lies in the classifier's folder. Raises WeightsError."""
    return _classifier_encoder(_path(settings, "classifier"), *_place(settings))


def _path(settings: Mapping[str, Value], name: str) -> Path | None:
    """None = random weights of a tiny configuration."""
    if given(settings, "tiny"):
        return None
    path = settings.get(name)
    if not isinstance(path, str) or not path:
        raise WeightsError(f"vjepa2: no checkpoint; set vjepa2.{name} to its path, or vjepa2.tiny=1")
    return Path(path)


def _place(settings: Mapping[str, Value]) -> tuple[str, torch.dtype]:
    return device_of(settings), precision(settings)


@cache
def _video(path: Path | None, device: str, dtype: torch.dtype) -> Video:
    config = TINY_VIDEO if path is None else read_video_config(path)
    weights = _weights(path, device, dtype)
    encoder = Encoder(weights, config.clip, config.encoder)
    return Video(config, encoder, MaskedPredictor(weights, config))


@cache
def _world(path: Path | None, device: str, dtype: torch.dtype) -> World:
    config = TINY_WORLD if path is None else read_world_config(path)
    weights = _weights(path, device, dtype)
    encoder = Encoder(weights, config.clip, config.encoder, normalised=True)
    decoder = PixelDecoder(weights, config.clip, config.encoder.width) if config.decoder else None
    found = World(config, encoder, ActionPredictor(weights, config), decoder)
    parts = ("encoder.", "predictor.", "decoder.")
    if isinstance(weights, Loaded) and (rest := [name for part in parts for name in weights.untaken(part)]):
        raise WeightsError(f"{path}: the config has no use for {rest[0]} and {len(rest) - 1} other tensors")
    return found


@cache
def _classifier(path: Path | None, device: str, dtype: torch.dtype) -> Classifier:
    config = TINY_VIDEO if path is None else read_video_config(path)
    return Classifier(_weights(path, device, dtype), config)


@cache
def _classifier_encoder(path: Path | None, device: str, dtype: torch.dtype) -> Encoder:
    if path is None:
        return _video(None, device, dtype).encoder
    config = read_video_config(path)
    return Encoder(_weights(path, device, dtype), config.clip, config.encoder)


def _weights(path: Path | None, device: str, dtype: torch.dtype) -> Weights:
    return Drawn(TINY_SEED, device, dtype) if path is None else read_weights(path, device, dtype)
