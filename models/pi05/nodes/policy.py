"""The policy that the settings name: its shape, where its weights come from, its statistics, its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from models.blocks.precision import device_of
from models.blocks.tensors import RandomTensors, Tensors, Under
from models.pi05.config import Pi05Config
from models.pi05.model import FLOW_STEPS
from models.pi05.robots import Robot
from models.pi05.shape import Shape, folder_of, shape
from models.pi05.statistics import Statistics
from models.pi05.tokenizer import Encode, read_tokenizer, tiny_tokenizer
from models.pi05.weights import read_weights
from mstar.errors import Rejected
from mstar.submodule import Call
from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class Policy:
    """What the nodes of one policy share. `encode` is None where the checkpoint has no tokenizer."""

    shape: Shape
    encode: Encode | None

    @property
    def config(self) -> Pi05Config:
        return self.shape.config

    @property
    def robot(self) -> Robot:
        return self.shape.robot

    @property
    def statistics(self) -> Statistics:
        return self.shape.statistics

    @property
    def channels(self) -> int:
        """Channels of an action as the robot sees it."""
        return self.shape.channels


def policy(settings: Mapping[str, Value]) -> Policy:
    """Settings: see `models.pi05.model`. Raises WeightsError."""
    found = shape(settings)
    return Policy(found, read_tokenizer(found.folder) if found.folder else tiny_tokenizer)


def tensors(settings: Mapping[str, Value]) -> Tensors:
    """The policy's weights, on the rank's device. Raises WeightsError."""
    folder = folder_of(settings)
    return Under(_weights(folder) if folder else RandomTensors(), "", device_of(settings))


def steps_of(call: Call) -> int:
    """Flow steps of the call's request. Raises Rejected."""
    value = call.settings.get("flow_steps", FLOW_STEPS)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= FLOW_STEPS:
        raise Rejected(f"flow_steps must be an integer from 1 to {FLOW_STEPS}, not {value!r}", param="flow_steps")
    return value


@cache
def _weights(folder: Path) -> Tensors:
    return read_weights(folder)
