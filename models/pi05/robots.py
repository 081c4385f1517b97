"""The keys by which robots' clients name their cameras and joints (torch-free)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Path = tuple[str, ...]
"""A key, or keys of objects inside one another."""


@dataclass(frozen=True, slots=True)
class Robot:
    """`cameras`: slot of the policy → where its picture is; `state`: parts that are joined in order, with their sizes.

    `actions` = channels of an action that the robot takes; 0 = as many as the statistics have, else all. Values keep
    the units of the checkpoint's statistics. `rate` = control steps per second; 0 = not known.
    """

    cameras: Mapping[str, Path]
    state: tuple[tuple[Path, int], ...] = ((("state",), 0),)  # size 0 = any
    actions: int = 0
    rate: float = 0.0


def own(cameras: tuple[str, ...]) -> Robot:
    """The policy's own names: `images/<slot>` and `state`."""
    return Robot({name: ("images", name) for name in cameras})


ROBOTS: Mapping[str, Robot] = {
    "droid": Robot(
        {
            "base_0_rgb": ("observation/exterior_image_1_left",),
            "left_wrist_0_rgb": ("observation/wrist_image_left",),
        },
        ((("observation/joint_position",), 7), (("observation/gripper_position",), 1)),
        8,
        15.0,
    ),
    "libero": Robot(
        {"base_0_rgb": ("observation/image",), "left_wrist_0_rgb": ("observation/wrist_image",)},
        ((("observation/state",), 8),),
        7,
        10.0,
    ),
    "aloha": Robot(
        {
            "base_0_rgb": ("images", "cam_high"),
            "left_wrist_0_rgb": ("images", "cam_left_wrist"),
            "right_wrist_0_rgb": ("images", "cam_right_wrist"),
        },
        ((("state",), 14),),
        14,
        50.0,
    ),
}
"""Clients of openpi (its examples of these names). Slots they have no camera for are masked."""
