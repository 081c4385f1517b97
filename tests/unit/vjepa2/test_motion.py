"""Poses, actions, and what leads from one to the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.vjepa2.motion import angles, between, moved, rotations

ANGLE = st.floats(-3.0, 3.0)


def axis_turn(axis: int, angle: float) -> np.ndarray:
    """By Rodrigues' formula, about one axis."""
    k = np.zeros((3, 3))
    i, j = (axis + 1) % 3, (axis + 2) % 3
    k[i, j], k[j, i] = -1.0, 1.0
    turn: np.ndarray = np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k
    return turn


@given(ANGLE, ANGLE, ANGLE)
def test_euler_angles_turn_about_the_fixed_axes_x_then_y_then_z(x: float, y: float, z: float) -> None:
    matrix = rotations(np.array([[x, y, z]]))[0]
    np.testing.assert_allclose(matrix, axis_turn(2, z) @ axis_turn(1, y) @ axis_turn(0, x), atol=1e-9)
    np.testing.assert_allclose(rotations(angles(matrix[None]))[0], matrix, atol=1e-5)


def test_where_y_is_a_right_angle_z_is_nothing_and_the_rotation_is_kept() -> None:
    for y in (np.pi / 2, -np.pi / 2):
        matrix = rotations(np.array([[0.4, y, 0.9]]))
        found = angles(matrix)
        assert found[0, 2] == 0
        np.testing.assert_allclose(rotations(found), matrix, atol=1e-6)


@given(st.lists(ANGLE, min_size=12, max_size=12))
def test_between_undoes_moved(numbers: list[float]) -> None:
    poses = np.array(numbers, np.float32).reshape(2, 6)
    poses = np.concatenate((poses, [[0.2], [0.9]]), axis=1).astype(np.float32)
    there = moved("pose", poses[:1], between(poses[:1], poses[1:]))
    np.testing.assert_allclose(there[0, [0, 1, 2, 6]], poses[1, [0, 1, 2, 6]], atol=1e-5)
    np.testing.assert_allclose(rotations(there[:, 3:6]), rotations(poses[1:, 3:6]), atol=1e-5)


def test_a_gripper_stays_between_open_and_closed() -> None:
    pose, move = np.zeros((2, 7), np.float32), np.zeros((2, 7), np.float32)
    move[:, 6] = (5.0, -5.0)
    np.testing.assert_array_equal(moved("pose", pose, move)[:, 6], [1.0, 0.0])
