"""What the core of a live session begins, as a question to the runtime (no sockets; decodes pictures)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from media.pictures import Picture
from models.registry import Key, Planner, Policy
from mstar.tensors import Value
from server.robot.commands import Begin, Goal
from server.robot.offers import Offer
from server.robot.questions import Question


def decoded(begin: Begin) -> Mapping[str, Picture]:
    """Camera → picture; takes milliseconds. Raises Rejected naming the camera."""
    return {name: frame.shot.decoded(name) for name, frame in begin.frames.items()}


def goal_of(goal: Goal) -> Mapping[str, Value]:
    """A goal as a planner takes it. Raises Rejected."""
    named: dict[str, Value] = {"id": goal.name}
    return named if goal.shot is None else {"image": goal.shot.decoded("goal"), **named}


def question_for(offer: Offer, begin: Begin, item: int) -> Question:
    """`item`: where the frame is in the camera's stream. Raises Rejected for pictures that can not be decoded."""
    match offer:
        case Policy():
            return Question(offer.act, "actions", {offer.observation: _observation(offer, begin)}, begin.settings)
        case Planner():
            assert begin.goal is not None
            inputs: dict[str, Value] = {"goal": goal_of(begin.goal), "state": begin.state["state"]}
            return Question(offer.plan, "plan", inputs, begin.settings, {offer.camera: item})


def _observation(offer: Policy, begin: Begin) -> Mapping[str, Value]:
    observation: dict[str, Any] = {}
    pictures = decoded(begin)
    for key in offer.cameras:
        if "/".join(key) in pictures:
            _put(observation, key, pictures["/".join(key)])
    for key in offer.state:
        _put(observation, key, begin.state["/".join(key)])
    observation["prompt"] = begin.prompt
    if begin.previous is not None:
        observation["prev_chunk"] = begin.previous
        observation["delay_steps"] = begin.delay
    return observation


def _put(observation: dict[str, Any], key: Key, value: Value) -> None:
    inner = observation
    for name in key[:-1]:
        inner = inner.setdefault(name, {})
    inner[key[-1]] = value
