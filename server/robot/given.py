"""What a robot's client may set, send and ask for, checked against what the model takes (pure)."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import UNSET

from models.registry import Planner, Policy
from mstar.errors import Rejected
from server.robot.events import Ask, Fields, Shown, State
from server.robot.offers import Offer, cameras_of, states_of
from server.robot.questions import numbers, settings_of

_PLAIN = (
    "cameras",
    "rate",
    "stale_ms",
    "wait_ms",
    "sync_ms",
    "missing",
    "frozen_ms",
    "prompt",
    "blend",
    "show",
    "stop",
)


def updated(shown: Shown, fields: Fields, offer: Offer) -> Shown:
    """All of it or nothing. Raises Rejected."""
    known = cameras_of(offer)
    if fields.cameras is not UNSET and fields.cameras is not None:
        unknown = [name for name in fields.cameras if name not in known]
        if unknown or not fields.cameras:
            text = f"cameras are some of {', '.join(known)}"
            raise Rejected(text, code="unknown_camera", param="session.cameras")
    if fields.blend is True and not (isinstance(offer, Policy) and offer.blends):
        raise Rejected("this model does not blend its chunks", param="session.blend")
    if fields.show is True and not (isinstance(offer, Planner) and offer.imagine):
        raise Rejected("this model can not show what it imagines", param="session.show")
    given = {name: value for name in _PLAIN if (value := getattr(fields, name)) is not UNSET}
    return msgspec.structs.replace(shown, **given)


def check_state(event: State, offer: Offer) -> None:
    """Raises Rejected for numbers that the model does not take."""
    wanted = states_of(offer)
    values = event.values if isinstance(event.values, dict) else dict.fromkeys(list(wanted)[:1], event.values)
    for key in values:
        if key not in wanted:
            raise Rejected(f"unknown state {key!r:.80}; known: {', '.join(wanted)}", param=f"values.{key}")
    for key, size in wanted.items():
        numbers(key, values.get(key), size)


def arrays(event: State, offer: Offer) -> dict[str, np.ndarray]:
    """A state that was checked, as the model takes it: key → float32 [count]."""
    wanted = states_of(offer)
    values = event.values if isinstance(event.values, dict) else {next(iter(wanted)): event.values}
    return {key: np.asarray(values[key], np.float32) for key in wanted}


def check_ask(ask: Ask, shown: Shown, offer: Offer, *, goal: bool) -> None:
    """Raises Rejected for unknown settings, and when what every chunk needs has not been said."""
    settings_of(offer, ask.settings)
    if not shown.rate:
        raise Rejected(
            "the model does not say how many actions it gives a second: session.rate has to",
            code="missing_key",
            param="session.rate",
        )
    if isinstance(offer, Planner) and not goal:
        raise Rejected("a planner needs a goal: send a picture, or name one", code="no_goal", param="session.goal")
