"""What the settings say of a policy before any weight is read: its sizes, its robot, its statistics (torch-free)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from models.pi05.config import TINY, Pi05Config, read_config
from models.pi05.robots import ROBOTS, Robot, own
from models.pi05.statistics import Statistics, read_statistics
from mstar.errors import WeightsError
from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class Shape:
    """`folder` of the checkpoint; None = the tiny policy."""

    folder: Path | None
    config: Pi05Config
    robot: Robot
    statistics: Statistics

    @property
    def channels(self) -> int:
        """Channels of an action as the robot sees it."""
        known = self.statistics.actions
        return self.robot.actions or (len(known.low) if known is not None else self.config.action_dim)


def shape(settings: Mapping[str, Value]) -> Shape:
    """Settings: see `models.pi05.model`. Raises WeightsError."""
    folder = folder_of(settings)
    config = read_config(folder) if folder else TINY
    robot = _robot(settings, config)
    statistics = _statistics(settings, folder)
    _check(config, robot, statistics)
    return Shape(folder, config, robot, statistics)


def folder_of(settings: Mapping[str, Value]) -> Path | None:
    """The checkpoint's folder; None = the tiny policy. Raises WeightsError."""
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
