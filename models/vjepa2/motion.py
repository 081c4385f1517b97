"""How actions move a state: rigid poses of an end effector, or plain sums (numpy only).

A pose is (x, y, z, three Euler angles, gripper); the angles turn about the fixed x, y and z axes, in this order, so
the rotation is R = Rz · Ry · Rx. An action is the change of a pose: positions and gripper add, the rotation of the
action is applied after that of the pose.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def moved(motion: str, states: Floats, actions: Floats) -> Floats:
    """States [n, s] after actions [n, a] → [n, s]; the gripper of a pose stays in 0 … 1."""
    if motion == "add":
        return states + actions
    after = np.empty_like(states)
    after[:, :3] = states[:, :3] + actions[:, :3]
    after[:, 3:6] = angles(rotations(actions[:, 3:6]) @ rotations(states[:, 3:6]))
    after[:, 6:] = np.clip(states[:, 6:] + actions[:, 6:], 0.0, 1.0)
    return after


def between(before: Floats, after: Floats) -> Floats:
    """Actions [n, 7] that move poses `before` [n, 7] to `after` [n, 7]."""
    turn = rotations(after[:, 3:6]) @ rotations(before[:, 3:6]).transpose(0, 2, 1)
    moves = (after - before).astype(np.float32)
    moves[:, 3:6] = angles(turn)
    return moves


def rotations(euler: NDArray[np.floating]) -> NDArray[np.float64]:
    """Euler angles [n, 3] in radians → matrices [n, 3, 3]."""
    (sx, sy, sz), (cx, cy, cz) = np.sin(euler.astype(np.float64)).T, np.cos(euler.astype(np.float64)).T
    rows = (
        (cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx),
        (sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx),
        (-sy, cy * sx, cy * cx),
    )
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def angles(matrices: NDArray[np.float64]) -> Floats:
    """Matrices [n, 3, 3] → Euler angles [n, 3]; where y is a right angle, and x and z turn alike, z is 0."""
    locked = np.hypot(matrices[:, 2, 1], matrices[:, 2, 2]) < 1e-7
    y = np.arcsin(np.clip(-matrices[:, 2, 0], -1.0, 1.0))
    x = np.where(
        locked,
        np.arctan2(-matrices[:, 1, 2], matrices[:, 1, 1]),
        np.arctan2(matrices[:, 2, 1], matrices[:, 2, 2]),
    )
    z = np.where(locked, 0.0, np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0]))
    return np.stack((x, y, z), axis=-1).astype(np.float32)
