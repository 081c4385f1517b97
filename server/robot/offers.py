"""What a served family offers to robots, and how a client is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from models.registry import Card, Planner, Policy
from mstar.tensors import Value
from server.security import Refusal

Offer: TypeAlias = Policy | Planner

IMAGE, STATE = "observation/image", "observation/state"
GOAL_IMAGE, GOAL_LATENT, GOAL_ID = "goal/image", "goal/latent", "goal_id"
"""A planner's observation over openpi's protocol."""
PLANNER_KEYS = (IMAGE, STATE, GOAL_IMAGE, GOAL_LATENT, GOAL_ID)


def offer_of(cards: Mapping[str, Card], model: str | None) -> tuple[str, Offer]:
    """A family by its served name; without one, the first that a robot can use. Raises Refusal(404)."""
    offers = {name: card.policy or card.planner for name, card in cards.items()}
    known = [name for name, offer in offers.items() if offer is not None]
    name = model or next(iter(known), "")
    offer = offers.get(name)
    if offer is None:
        there = f"; there is: {', '.join(known)}" if known else ""
        raise Refusal(404, "model_not_found", f"No policy or planner {name!r:.80} is served here{there}.", "model")
    return name, offer


def cameras_of(offer: Offer) -> tuple[str, ...]:
    """Names of the pictures of an observation."""
    match offer:
        case Policy():
            return tuple("/".join(key) for key in offer.cameras)
        case Planner():
            return (offer.camera,)


def states_of(offer: Offer) -> dict[str, int]:
    """Names of the numbers of an observation, and how many there are of each; 0 = any."""
    match offer:
        case Policy():
            return {"/".join(key): size for key, size in offer.state.items()}
        case Planner():
            return {"state": offer.state_dim}


def described(name: str, offer: Offer) -> dict[str, Value]:
    """What every robot's client is told of a family, in plain types."""
    shared: dict[str, Value] = {
        "model": name,
        "horizon": offer.horizon,
        "action_dim": offer.action_dim,
        "cameras": list(cameras_of(offer)),
        "state": {key: size or None for key, size in states_of(offer).items()},
        "image_resolution": [offer.side, offer.side],
        "control_hz": offer.rate or None,
    }
    match offer:
        case Policy():
            return {**shared, "kind": "policy", "blends": offer.blends}
        case Planner():
            return {**shared, "kind": "planner", "iterations": offer.iterations, "shows": bool(offer.imagine)}


def announced(name: str, offer: Offer) -> dict[str, Value]:
    """The first frame over openpi's protocol: the above, and the fields of RoboArena's server settings."""
    told = described(name, offer)
    keys = cameras_of(offer)
    if isinstance(offer, Planner):
        keys = (IMAGE,)
        told |= {"state": {STATE: offer.state_dim}, "goal": [GOAL_IMAGE, GOAL_LATENT, GOAL_ID]}
    wrists = [key for key in keys if "wrist" in key]
    return {
        "protocol": "openpi",
        **told,
        "cameras": list(keys),
        "needs_wrist_camera": bool(wrists),
        "n_external_cameras": len(keys) - len(wrists),
        "needs_stereo_camera": False,
        "needs_session_id": False,
        "action_space": None,  # what actions mean is not written in a checkpoint
    }
