"""How a world model is trained: sizes, steps and how it plans (no torch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from models.vjepa2.config import Clip, Transformer, WorldConfig
from models.vjepa2.planning import Planner
from models.worlds.arena import Arena
from models.worlds.room import PixelRoom


@dataclass(frozen=True, slots=True)
class Recipe:
    """`config.clip.steps` is the longest rollout, and the model is trained on as many predictions in a row: beyond them
    a frame has a number that it never saw.
    """

    arena: Callable[[], Arena]
    config: WorldConfig
    episodes: int
    frames: int  # of an episode
    seeing_steps: int  # of the encoder, with a sketch
    seeing_batch: int
    imagining_steps: int  # of the predictor
    imagining_batch: int
    painting_steps: int  # of the decoder
    rate: float = 1.5e-3  # AdamW, cosine
    where: float = 0.1  # share of the place in the encoder's loss
    steps: int = 10  # actions within which a goal has to be reached


def reacher() -> Arena:
    """The arm. Raises ModuleNotFoundError without gymnasium and mujoco (the extra `robot`)."""
    from models.worlds.reacher import Reacher

    return Reacher()


def _small(reach: float, *, rate: float, bearings: int) -> WorldConfig:
    return WorldConfig(
        clip=Clip(size=64, patch=16, tubelet=2, frames=6),
        encoder=Transformer(64, 3, 2, 256),
        predictor=Transformer(64, 2, 2, 256),
        action=2,
        state=2,
        motion="add",
        planner=Planner(horizon=3, samples=96, iterations=4, topk=10, maxnorm=reach, objective="mean"),
        rate=rate,
        decoder=bearings,
    )


ROOM = Recipe(
    arena=PixelRoom,
    config=_small(PixelRoom.reach, rate=2.0, bearings=2),
    episodes=3000,
    frames=6,
    seeing_steps=1000,
    seeing_batch=64,
    imagining_steps=2000,
    imagining_batch=32,
    painting_steps=1500,
)
REACHER = Recipe(
    arena=reacher,
    config=_small(1.0, rate=2.0, bearings=5),
    episodes=2000,
    frames=6,
    seeing_steps=4000,
    seeing_batch=64,
    imagining_steps=2500,
    imagining_batch=32,
    painting_steps=4000,
    where=0.3,
    steps=20,
)

RECIPES: Mapping[str, Recipe] = {"room": ROOM, "reacher": REACHER}
