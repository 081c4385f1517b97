"""From what a robot's client sends to a task of the runtime, and the task's result (no sockets)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from models.registry import Planner, Policy
from mstar.client import Emission, RequestEnded, Session
from mstar.errors import Rejected
from mstar.tensors import Value
from server.robot.offers import GOAL_ID, GOAL_IMAGE, GOAL_LATENT, IMAGE, PLANNER_KEYS, STATE, Offer
from server.security import PASSING

SETTINGS = "settings"
_OURS = frozenset({"node_failed", "session_closed", *PASSING})
"""Codes of failures that are not the caller's."""


@dataclass(frozen=True, slots=True)
class Question:
    """A task with its inputs; `output` is the emission that answers it, the last one if there are several."""

    task: str
    output: str
    inputs: Mapping[str, Value]
    settings: Mapping[str, Value]
    positions: Mapping[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Failed(Exception):  # not frozen: context managers write an exception's traceback
    """The runtime could not answer. `ours`: not by a fault of the caller."""

    message: str
    code: str
    param: str | None
    ours: bool


def question_of(offer: Offer, observation: Mapping[str, Value]) -> Question:
    """One observation over openpi's protocol. Raises Rejected, naming the key; a policy checks its own keys later."""
    settings = settings_of(offer, observation.get(SETTINGS, {}))
    rest = {name: value for name, value in observation.items() if name != SETTINGS}
    match offer:
        case Policy():
            return Question(offer.act, "actions", {offer.observation: rest}, settings)
        case Planner():
            return _planned(offer, rest, settings)


def settings_of(offer: Offer, given: Value) -> Mapping[str, Value]:
    """A request's settings, all of them known; their values are the family's to check. Raises Rejected."""
    if not isinstance(given, Mapping):
        raise Rejected(f"settings must be a map, not {type(given).__name__}", param=SETTINGS)
    known = ("seed", *offer.settings)
    for name in given:
        if name not in known:
            text = f"unknown setting {name!r:.80}; known: {', '.join(known)}"
            raise Rejected(text, code="unknown_key", param=f"{SETTINGS}.{name:.80}")
        if not _travels(given[name]):
            text = f"{SETTINGS}.{name} holds a whole number of more than 64 bits"
            raise Rejected(text, param=f"{SETTINGS}.{name}")
    seed = given.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed >= 2**63):
        raise Rejected(f"seed is {seed!r:.80}, not a whole number of 64 bits", param=f"{SETTINGS}.seed")
    return given


def _travels(value: Value) -> bool:
    """Whether all whole numbers in it fit into messages."""
    match value:
        case int():
            return -(2**63) <= value < 2**64
        case list() | tuple():
            return all(map(_travels, value))
        case Mapping():
            return all(map(_travels, value.values()))
        case _:
            return True


def _planned(offer: Planner, given: Mapping[str, Value], settings: Mapping[str, Value]) -> Question:
    for key in given:
        if key not in PLANNER_KEYS:
            raise Rejected(f"unknown key {key}; known: {', '.join(PLANNER_KEYS)}", code="unknown_key", param=key)
    inputs: dict[str, Value] = {
        "observation": picture(IMAGE, given.get(IMAGE)),
        "goal": _goal(given),
        "state": numbers(STATE, given.get(STATE), offer.state_dim),
    }
    return Question(offer.plan_image, "plan", inputs, settings)


def _goal(given: Mapping[str, Value]) -> Mapping[str, Value]:
    """Raises Rejected without any goal."""
    goal: dict[str, Value] = {}
    if given.get(GOAL_IMAGE) is not None:
        goal["image"] = picture(GOAL_IMAGE, given[GOAL_IMAGE])
    if given.get(GOAL_LATENT) is not None:
        goal["latent"] = given[GOAL_LATENT]
    if given.get(GOAL_ID) is not None:
        goal["id"] = given[GOAL_ID]
    if not goal:
        keys = f"{GOAL_IMAGE}, {GOAL_LATENT} or {GOAL_ID}"
        raise Rejected(f"the observation has no goal: a planner needs one of {keys}", code="no_goal", param=GOAL_IMAGE)
    return goal


def picture(key: str, value: Value) -> np.ndarray:
    """[height, width, 3] uint8, also of [3, height, width]. Raises Rejected, naming the key."""
    if value is None:
        raise Rejected(f"key {key} is missing", code="missing_key", param=key)
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8:
        what = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        raise Rejected(f"{key} must be a uint8 array, not {what}", code="wrong_dtype", param=key)
    if value.ndim == 3 and value.shape[2] != 3 and value.shape[0] == 3:
        value = value.transpose(1, 2, 0)
    if value.ndim != 3 or value.shape[2] != 3 or not value.size:
        text = f"{key} has shape {value.shape}, not (height, width, 3) or (3, height, width)"
        raise Rejected(text, code="wrong_shape", param=key)
    return value


def numbers(key: str, value: Value, size: int) -> np.ndarray:
    """[size] float32; `size` 0 = any. Raises Rejected, naming the key."""
    if value is None:
        raise Rejected(f"key {key} is missing", code="missing_key", param=key)
    try:
        array = np.asarray(value, np.float32).reshape(-1)
    except (TypeError, ValueError):
        raise Rejected(f"{key} must hold numbers", code="wrong_dtype", param=key) from None
    if size and len(array) != size:
        raise Rejected(f"{key} has {len(array)} values, not {size}", code="wrong_shape", param=key)
    if not np.isfinite(array).all():
        raise Rejected(f"{key} holds values that are not finite", param=key)
    return array


async def answered(
    runtime: Session, question: Question, emitted: Callable[[], None] = lambda: None
) -> Mapping[str, Value]:
    """Ask, and wait for the result; `emitted` is called for every one that comes on the way to it. Raises Failed.

    Whoever stops waiting ends the request.
    """
    request = runtime.start(question.task, question.inputs, question.settings, question.positions)
    result: Mapping[str, Value] = {}
    try:
        async for event in request:
            match event:
                case Emission(output=question.output, value=value):
                    result = value
                    emitted()
                case RequestEnded(status="done"):
                    return result
                case RequestEnded():
                    raise failed(event)
                case _:
                    pass
    finally:
        request.interrupt()
    raise Failed("the request ended without an end", "node_failed", None, ours=True)


def failed(end: RequestEnded) -> Failed:
    """The terminal event of a request that was not done."""
    return Failed(end.cause or f"the request was {end.status}", end.code, end.param or None, end.code in _OURS)
