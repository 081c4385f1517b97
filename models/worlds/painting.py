"""The decoder that shows what a world model imagines, trained when the model is.

It learns two things at once: to read the robot's place from the tokens of a frame, be it seen or imagined, and to paint
the robot where it is. It paints from the true place: from a place that is read, whose errors it can not foresee, it
would learn to smear what is thin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.vjepa2.pictures import PixelDecoder
from models.worlds.arena import Picture
from models.worlds.learned import SPREAD, Learned, Say, descent
from models.worlds.recipe import Recipe

BATCH, PIXELS = 64, 512
"""Frames of a step, and pixels of each."""
STANDING_OUT = 6.0
"""How much more a pixel counts that differs from the still scene as much as can be."""
BARE = -2.0
"""Cover at first, before the sigmoid: mostly the scene."""
MEDIAN_OF = 1000
"""Pictures whose median is the still scene at first."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Seen or imagined, as tokens [n, patches, width]: they show `pictures`[`shown` [n]], a robot at `places`."""

    tokens: Tensor
    shown: Tensor
    places: Tensor  # [n, numbers]
    pictures: Picture  # [m, side, side, 3]


def learn_to_paint(recipe: Recipe, frames: Frames, seed: int, say: Say) -> Learned:
    """The decoder's weights; the same seed gives the same for the same frames."""
    learned, random = Learned(seed), np.random.default_rng(seed)
    clip, width = recipe.config.clip, recipe.config.encoder.width
    decoder = PixelDecoder(learned, clip, width, recipe.config.decoder)
    pictures = torch.from_numpy(frames.pictures).flatten(1, 2)  # [m, pixels, 3]
    scene = learned.parameters["decoder.scene"]
    with torch.no_grad():
        some = pictures[:: max(1, len(pictures) // MEDIAN_OF)].float().median(dim=0).values / 255
        scene.copy_(some.unflatten(0, (clip.size, clip.size)))
        for name in ("first", "second", "shown"):
            weight = learned.parameters[f"decoder.{name}.weight"]
            weight.mul_((1.5 / weight.shape[1]) ** 0.5 / SPREAD)
        learned.parameters["decoder.shown.bias"][0] = BARE
    placed = 0.0

    def loss() -> Tensor:
        nonlocal placed
        chosen = torch.from_numpy(random.integers(0, len(frames.tokens), BATCH))
        pixels = torch.from_numpy(random.integers(0, clip.size**2, PIXELS))
        places = frames.places[chosen]
        wanted = pictures[frames.shown[chosen]][:, pixels].float() / 255
        off = (decoder.where(frames.tokens[chosen]) - places).abs().mean()
        placed = float(off.detach())
        counts = 1 + STANDING_OUT * (wanted - scene.detach().flatten(0, 1)[pixels]).abs()
        return ((decoder.at(places, pixels) - wanted).square() * counts).mean() + off

    for step, value in descent(learned.within("decoder."), 2 * recipe.rate, recipe.painting_steps, loss):
        say(f"painting {step}: error {value:.4f}, of the place {placed:.3f}")
    return learned
