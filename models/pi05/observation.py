"""What a robot's client sends, checked key by key (torch-free)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from models.pi05.robots import Path, Robot
from mstar.errors import Rejected
from mstar.tensors import Value

_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class Observation:
    """One moment of a robot, and how its next chunk is to be drawn."""

    images: Mapping[str, np.ndarray]  # camera slot → [height, width, 3], uint8 or float32 in [-1, 1]
    state: np.ndarray | None  # [n] float32, in the robot's units
    prompt: str
    tokens: np.ndarray | None  # [n] int64, the prompt's ids; then neither prompt nor state is read
    noise: np.ndarray | None  # [horizon, action_dim] float32
    previous: np.ndarray  # [rows, actions] float32: what the chunk before says for the rows of this one
    delay: int  # rows that will be over when the chunk arrives: they are those of `previous`


def parse(value: Value, robot: Robot, *, horizon: int, action_dim: int) -> Observation:
    """The observation in a client's record; raises Rejected, naming the key that is missing, unknown or misshapen.

    Keys: those of the robot's cameras (at least one; None or absent = masked) and state; `prompt`, or `tokens` in its
    place; and if wanted `noise` (normalised), `prev_chunk` and `delay_steps`. Pictures are [h, w, 3] or [3, h, w].
    Row i of `prev_chunk` is what the chunk before says for the control step of row i of the new one: what it has not
    yet acted out when the observation is taken. The first `delay_steps` rows will be acted out in the meantime.
    """
    if not isinstance(value, Mapping):
        raise Rejected(f"observation must be a map, not {type(value).__name__}", param="observation")
    _no_unknown(value, robot)
    images = {}
    for slot, path in robot.cameras.items():
        found = _find(value, path)
        if found is not None:
            images[slot] = _picture(found, "/".join(path))
    if not images:
        names = ", ".join("/".join(path) for path in robot.cameras.values())
        raise Rejected(f"the observation has no picture: one of {names} is needed", code="missing_key", param="images")
    tokens = None if value.get("tokens") is None else _tokens(value["tokens"])
    prompt = value.get("prompt", "")
    if tokens is None and (not isinstance(prompt, str) or not prompt.strip()):
        raise Rejected(f"prompt must be a text, not {prompt!r}", code="missing_key", param="prompt")
    noise = None if value.get("noise") is None else _numbers(value["noise"], "noise", (horizon, action_dim))
    previous, delay = _previous(value, horizon, robot.actions or action_dim)
    state = _state(value, robot) if tokens is None else None
    return Observation(images, state, str(prompt), tokens, noise, previous, delay)


def _no_unknown(value: Mapping[str, Value], robot: Robot) -> None:
    paths = [*robot.cameras.values(), *(path for path, _ in robot.state)]
    _known(value, {path[0] for path in paths} | {"prompt", "tokens", "noise", "prev_chunk", "delay_steps"}, "")
    for outer in {path[0] for path in paths if len(path) > 1}:
        inner = value.get(outer)
        if inner is None:
            continue
        if not isinstance(inner, Mapping):
            raise Rejected(f"{outer} must be a map, not {type(inner).__name__}", param=outer)
        _known(inner, {path[1] for path in paths if path[0] == outer}, f"{outer}/")


def _known(keys: Iterable[object], known: set[str], prefix: str) -> None:
    for key in keys:
        if key not in known:
            names = ", ".join(prefix + name for name in sorted(known))
            raise Rejected(f"unknown key {prefix}{key}; known: {names}", code="unknown_key", param=f"{prefix}{key}")


def _find(value: Mapping[str, Value], path: Path) -> Value:
    found: Value = value
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _state(value: Mapping[str, Value], robot: Robot) -> np.ndarray:
    parts = []
    for path, size in robot.state:
        key = "/".join(path)
        found = _find(value, path)
        if found is None:
            raise Rejected(f"key {key} is missing", code="missing_key", param=key)
        part = _numbers(found, key).reshape(-1)
        if size and len(part) != size:
            raise Rejected(f"{key} has {len(part)} values, the robot has {size}", code="wrong_shape", param=key)
        parts.append(part)
    return np.concatenate(parts)


def _numbers(value: Value, key: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    try:
        array = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError):
        raise Rejected(f"{key} must hold numbers", param=key) from None
    if shape is not None and array.shape != shape:
        raise Rejected(f"{key} has shape {array.shape}, not {shape}", code="wrong_shape", param=key)
    if not np.isfinite(array).all():
        raise Rejected(f"{key} holds values that are not finite", param=key)
    return array


def _tokens(value: Value) -> np.ndarray:
    array = np.asarray(value)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iu":
        raise Rejected(f"tokens must be ids [n], not {array.dtype} {array.shape}", code="wrong_shape", param="tokens")
    return array.astype(np.int64)


def _picture(value: Value, key: str) -> np.ndarray:
    array = np.asarray(value)
    if array.ndim != 3 or 3 not in (array.shape[0], array.shape[2]) or 0 in array.shape:
        raise Rejected(
            f"{key} has shape {array.shape}, not (height, width, 3) or (3, height, width)",
            code="wrong_shape",
            param=key,
        )
    if array.shape[2] != 3:
        array = array.transpose(1, 2, 0)
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        raise Rejected(f"{key} is {array.dtype}, not uint8 or float", param=key)
    if not np.abs(array).max() <= 1 + _ROUNDING:
        raise Rejected(f"{key} holds floats outside [-1, 1]", param=key)
    return array.astype(np.float32)


def _previous(value: Mapping[str, Value], horizon: int, channels: int) -> tuple[np.ndarray, int]:
    given, delay = value.get("prev_chunk"), value.get("delay_steps")
    delay = 0 if delay is None else delay
    if isinstance(delay, bool) or not isinstance(delay, int | np.integer) or delay < 0:
        raise Rejected(f"delay_steps must be an integer from 0 on, not {delay!r}", param="delay_steps")
    if given is None:
        previous = np.zeros((0, channels), np.float32)
    else:
        previous = _numbers(given, "prev_chunk")
        if previous.ndim != 2 or previous.shape[1] != channels or len(previous) > horizon:
            raise Rejected(
                f"prev_chunk has shape {previous.shape}, not (at most {horizon}, {channels})",
                code="wrong_shape",
                param="prev_chunk",
            )
    if delay > len(previous):
        raise Rejected(
            f"delay_steps is {delay}, but prev_chunk has only {len(previous)} rows for them", param="delay_steps"
        )
    return previous, int(delay)
