"""The prompt of π0.5: the instruction and the robot's state as words (torch-free)."""

from __future__ import annotations

import numpy as np

BINS = 256
_EDGES = np.linspace(-1, 1, BINS + 1)[:-1]


def state_bins(state: np.ndarray) -> np.ndarray:
    """state [...] normalised to [-1, 1] → [...] int64: 0 … 255, -1 below -1, 255 from 1 - 2/256 on (openpi)."""
    bins: np.ndarray = np.digitize(state, _EDGES).astype(np.int64) - 1
    return bins


def render(instruction: str, state: np.ndarray) -> str:
    """The prompt's text; `state` [n] normalised. Upper and lower case and the last space are kept (openpi)."""
    said = instruction.strip().replace("_", " ").replace("\n", " ")
    return f"Task: {said}, State: {' '.join(map(str, state_bins(state)))};\nAction: "
