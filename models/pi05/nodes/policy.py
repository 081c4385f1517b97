"""The policy that the settings name: its shape, where its weights come from, its statistics, its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from models.blocks.tensors import RandomTensors, Tensors, Under
from models.pi05.config import TINY, Pi05Config, read_config
from models.pi05.model import FLOW_STEPS
from models.pi05.robots import ROBOTS, Robot, own
from models.pi05.statistics import Statistics, read_statistics
from models.pi05.tokenizer import Encode, read_tokenizer, tiny_tokenizer
from models.pi05.weights import read_weights
from mstar.errors import Rejected, WeightsError
from mstar.submodule import Call
from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class Policy:
    """What the nodes of one policy share. `encode` is None where the checkpoint has no tokenizer."""

    config: Pi05Config
    robot: Robot
    statistics: Statistics
    encode: Encode | None

    @property
    def channels(self) -> int:
        """Channels of an action as the robot sees it."""
        known = self.statistics.actions
        return self.robot.actions or (len(known.low) if known is not None else self.config.action_dim)


def policy(settings: Mapping[str, Value]) -> Policy:
    """Settings: see `models.pi05.model`. Raises WeightsError."""
    folder = _folder(settings)
    config = read_config(folder) if folder else TINY
    robot = _robot(settings, config)
    statistics = _statistics(settings, folder)
    _check(config, robot, statistics)
    return Policy(config, robot, statistics, read_tokenizer(folder) if folder else tiny_tokenizer)


def tensors(settings: Mapping[str, Value]) -> Tensors:
    """The policy's weights, on the rank's device. Raises WeightsError."""
    folder = _folder(settings)
    device = settings.get("device", "cpu")
    return Under(_weights(folder) if folder else RandomTensors(), "", device if isinstance(device, str) else "cpu")


def steps_of(call: Call) -> int:
    """Flow steps of the call's request. Raises Rejected."""
    value = call.settings.get("flow_steps", FLOW_STEPS)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= FLOW_STEPS:
        raise Rejected(f"flow_steps must be an integer from 1 to {FLOW_STEPS}, not {value!r}", param="flow_steps")
    return value


@cache
def _weights(folder: Path) -> Tensors:
    return read_weights(folder)


def _folder(settings: Mapping[str, Value]) -> Path | None:
    """The checkpoint's folder; None = the tiny policy."""
    given, tiny = settings.get("checkpoint"), settings.get("tiny") in (True, "true")
    if isinstance(given, str) and given and not tiny:
        folder = Path(given)
        if not folder.is_dir():
            raise WeightsError(f"{folder}: no such folder")
        return folder
    if given or not tiny:
        raise WeightsError("pi05 needs the setting `checkpoint` (a folder in lerobot's layout), or else `tiny: true`")
    return None


def _robot(settings: Mapping[str, Value], config: Pi05Config) -> Robot:
    name = settings.get("robot")
    if name is None:
        return own(config.cameras)
    if not isinstance(name, str) or name not in ROBOTS:
        raise WeightsError(f"robot {name!r} is not known ({', '.join(ROBOTS)})")
    return ROBOTS[name]


def _statistics(settings: Mapping[str, Value], folder: Path | None) -> Statistics:
    given = settings.get("statistics")
    if given == "none" or (given is None and folder is None):
        return Statistics()
    if isinstance(given, str):
        return read_statistics(Path(given))
    assert folder is not None
    return read_statistics(folder)


def _check(config: Pi05Config, robot: Robot, statistics: Statistics) -> None:
    unknown = [name for name in robot.cameras if name not in config.cameras]
    if unknown:
        raise WeightsError(f"the policy has no camera {unknown[0]} ({', '.join(config.cameras)})")
    state, actions = statistics.state, statistics.actions
    if state is not None and len(state.low) > config.state_dim:
        raise WeightsError(f"statistics of {len(state.low)} state values, the policy takes {config.state_dim}")
    if actions is not None and len(actions.low) > config.action_dim:
        raise WeightsError(f"statistics of {len(actions.low)} action channels, the policy has {config.action_dim}")
    if actions is not None and robot.actions > len(actions.low):
        raise WeightsError(f"statistics of {len(actions.low)} action channels, the robot takes {robot.actions}")
