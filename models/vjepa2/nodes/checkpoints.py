"""The family's networks, each read once a process however many nodes use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

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
Part = TypeVar("Part")


class Video:
    """V-JEPA 2. Its parts are read when a node of the rank first needs them; raises WeightsError then."""

    def __init__(self, path: Path | None, device: str, dtype: torch.dtype) -> None:
        self.config: VideoConfig = TINY_VIDEO if path is None else read_video_config(path)
        self._where = (path, device, dtype)

    @cached_property
    def encoder(self) -> Encoder:
        return Encoder(_weights(*self._where, "encoder."), self.config.clip, self.config.encoder)

    @cached_property
    def predictor(self) -> MaskedPredictor:
        return MaskedPredictor(_weights(*self._where, "predictor."), self.config)


class World:
    """V-JEPA 2-AC. Its parts come from one file and are read as those of `Video`, all of each."""

    def __init__(self, path: Path | None, device: str, dtype: torch.dtype) -> None:
        self.config: WorldConfig = TINY_WORLD if path is None else read_world_config(path)
        self._where = (path, device, dtype)

    @cached_property
    def encoder(self) -> Encoder:
        sizes = self.config
        return self._read("encoder.", lambda weights: Encoder(weights, sizes.clip, sizes.encoder, normalised=True))

    @cached_property
    def predictor(self) -> ActionPredictor:
        return self._read("predictor.", lambda weights: ActionPredictor(weights, self.config))

    @cached_property
    def decoder(self) -> PixelDecoder | None:
        sizes = self.config
        if not sizes.decoder:
            return None
        return self._read(
            "decoder.", lambda weights: PixelDecoder(weights, sizes.clip, sizes.encoder.width, sizes.decoder)
        )

    def _read(self, part: str, make: Callable[[Weights], Part]) -> Part:
        weights = _weights(*self._where, part)
        made = make(weights)
        if isinstance(weights, Loaded) and (rest := weights.untaken(part)):
            path = self._where[0]
            raise WeightsError(f"{path}: the config has no use for {rest[0]} and {len(rest) - 1} other tensors")
        return made


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


def classifier_config(settings: Mapping[str, Value]) -> VideoConfig:
    """Sizes of the classifier. Raises WeightsError."""
    path = _path(settings, "classifier")
    return TINY_VIDEO if path is None else read_video_config(path)


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


_video, _world = cache(Video), cache(World)


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


def _weights(path: Path | None, device: str, dtype: torch.dtype, part: str = "") -> Weights:
    return Drawn(TINY_SEED, device, dtype) if path is None else read_weights(path, device, dtype, part)
