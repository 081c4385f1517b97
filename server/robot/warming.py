"""The first request of every family for robots, asked before anybody is let in.

What a family makes once (threads, compiled code, memory) is made then, and not while a robot waits for its first chunk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from models.registry import Planner, Policy
from mstar.errors import Rejected
from mstar.tensors import Value
from server.door import Server
from server.robot.offers import GOAL_IMAGE, IMAGE, STATE, Offer
from server.robot.questions import SETTINGS, Failed, answered, question_of

log = logging.getLogger("mstar.server")


async def warm(server: Server) -> None:
    """Returns when all that want it have answered once, or failed to."""
    for name, card in server.cards.items():
        offer = card.policy or card.planner
        if offer is not None and offer.warm is not None:
            await _ask(server, name, offer, offer.warm)


async def _ask(server: Server, name: str, offer: Offer, settings: Mapping[str, Value]) -> None:
    now = asyncio.get_running_loop().time
    began = now()
    try:
        runtime = await server.client.open(name)
        try:
            await answered(runtime, question_of(offer, {**nothing(offer), SETTINGS: settings}))
        finally:
            await runtime.close()
    except (Rejected, Failed) as why:
        log.warning("%s: its first request has failed: %s", name, why.message)
    else:
        log.info("%s: warm after %.1f s", name, now() - began)


def nothing(offer: Offer) -> dict[str, Value]:
    """An observation, as openpi's clients would send it, of black pictures and zeros."""
    black = np.zeros((offer.side, offer.side, 3), np.uint8)
    match offer:
        case Policy():
            seen: dict[str, Any] = {}
            for key in offer.cameras:
                _put(seen, key, black)
            for key, size in offer.state.items():
                _put(seen, key, np.zeros(max(size, 1), np.float32))
            return {**seen, "prompt": "wait"}
        case Planner():
            return {IMAGE: black, GOAL_IMAGE: black, STATE: np.zeros(offer.state_dim, np.float32)}


def _put(seen: dict[str, Any], key: tuple[str, ...], value: np.ndarray) -> None:
    for name in key[:-1]:
        seen = seen.setdefault(name, {})
    seen[key[-1]] = value
