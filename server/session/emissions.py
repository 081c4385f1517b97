"""What a family emits, as values with names and types. A family that emits something else is at fault: TypeError."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mstar.tensors import Value
from server.session.alignment import Word
from server.session.playout import PcmF
from server.session.responses import Tokens


def _map(value: Value) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected a map, got {type(value).__name__}")
    return value


def probability(value: Value) -> float:
    """Of `speech` and `complete`: a number, or an array that holds one."""
    return float(np.asarray(value, dtype=np.float32).reshape(-1)[0])


def text(value: Value) -> str:
    """Of `text` and `transcript`: the field `text`, or the text itself."""
    return value if isinstance(value, str) else str(_map(value)["text"])


def pcm(value: Value) -> PcmF:
    """Of `audio`: float32 [n]."""
    return np.asarray(_map(value)["pcm"], dtype=np.float32).reshape(-1)


def trimmed(value: Value) -> int:
    """Of `audio`: samples of silence that were cut from the answer's beginning."""
    return int(np.asarray(_map(value).get("trimmed", 0)))


def words(value: Value) -> list[Word]:
    """Of `alignment`: rows of first and last character, first and last sample."""
    rows = np.asarray(_map(value)["words"], dtype=np.int64).reshape(-1, 4)
    return [Word(*(int(number) for number in row)) for row in rows]


def call(value: Value) -> tuple[str, str]:
    """Of `call`: name and arguments (JSON text)."""
    given = _map(value)
    return str(given["name"]), str(given["arguments"])


def tokens(value: Value) -> Tokens:
    """Of `usage`."""
    given = {name: number for name, number in _map(value).items() if isinstance(number, (int, float))}
    return Tokens(
        int(given.get("prompt", 0)),
        int(given.get("reused", 0)),
        int(given.get("generated", 0)),
        str(_map(value).get("reason", "stop")),
    )
