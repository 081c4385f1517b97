"""Training of a world model of the V-JEPA 2-AC shape, through the networks that serve it.

First the encoder, together with a sketch of pixels: a picture has to come back from its tokens, and each token has to
say where the robot is, which its own sensors recorded beside the picture. Without that, tokens of two places that have
nothing in common are equally far apart wherever these are, and a planner finds no way from the one to the other.

Then, with the encoder as it is, the predictor: the next frame's tokens from those seen (teacher forcing), and from
those that it predicted itself, by the mean absolute error, as V-JEPA 2 does (Assran et al. 2025, section 3.1).

At last, with both as they are, the decoder of what is imagined (`models.worlds.painting`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from models.vjepa2.config import Transformer, WorldConfig
from models.vjepa2.network import Affine, Encoder, centred
from models.vjepa2.pictures import normalised
from models.vjepa2.planning import Planner
from models.vjepa2.world import ActionPredictor, Frames
from models.worlds.arena import Floats, Walks, walk
from models.worlds.learned import Learned, Say, descent
from models.worlds.painting import Frames as Painted
from models.worlds.painting import learn_to_paint
from models.worlds.recipe import Recipe
from models.worlds.sketch import Sketch
from mstar.submodule import Row

EPISODES = 250
"""Imagined at once."""


@cache
def block_mask(frames: int, size: int) -> Tensor:
    """[frames · size, frames · size] bool: whether a token sees another; a frame has `size` of them."""
    frame = torch.arange(frames).repeat_interleave(size)
    return frame[:, None] >= frame[None, :]


class BlockCausal:
    """The attention of a training step: sequences of equal frames; a token sees its own frame and those before."""

    rows: Sequence[Row] = ()

    def __init__(self, sequences: int, seen: Tensor) -> None:
        """`seen` [tokens, tokens] of a sequence, see `block_mask`."""
        self.positions = torch.arange(len(seen)).repeat(sequences)
        self._sequences = sequences
        self._seen = seen

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
        """[tokens, heads, dim] each → the same."""
        q, k, v = (part.unflatten(0, (self._sequences, -1)).transpose(1, 2) for part in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self._seen, scale=scale).transpose(1, 2).flatten(0, 1)

    def write_cross(self, layer: int, row: int, k: Tensor, v: Tensor) -> None:
        """There is none."""
        raise NotImplementedError

    def attend_cross(self, layer: int, q: Tensor, *, scale: float | None = None) -> Tensor:
        """There is none."""
        raise NotImplementedError


def predict(network: ActionPredictor, tokens: Tensor, actions: Tensor, states: Tensor) -> Tensor:
    """tokens [n, frames, patches, width], actions, states [n, frames, …] → tokens of the frame after each of them."""
    count, frames = tokens.shape[:2]
    seen = block_mask(frames, network.config.frame_tokens)
    [hidden] = network.forward([Frames(tokens, actions, states, 0)], BlockCausal(count, seen))
    return centred(network.predicted(hidden))


def train(recipe: Recipe, seed: int, say: Say) -> Learned:
    """All of it; the same seed gives the same weights on the same machine with one thread."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    began = time.monotonic()
    arena = recipe.arena()
    walks = walk(arena, recipe.episodes, recipe.frames, random)
    bearings = arena.bearings(walks.states.reshape(-1, arena.size))
    say(f"{walks.states.shape[0] * walks.states.shape[1]} frames in {time.monotonic() - began:.0f} s")
    learned = Learned(seed)
    config = recipe.config
    encoder = Encoder(learned, config.clip, config.encoder, normalised=True)
    sketch = Sketch(learned, config.clip, config.encoder.width)
    network = ActionPredictor(learned, config)
    _learn_to_see(recipe, learned, encoder, sketch, walks, bearings, random, say)
    tokens = encoded(encoder, walks, config)
    _learn_to_imagine(recipe, learned, network, tokens, walks, random, say)
    painted = learn_to_paint(recipe, to_paint(network, tokens, walks, bearings), seed, say)
    learned.parameters.update(painted.parameters)
    say(f"trained in {time.monotonic() - began:.0f} s")
    return learned


def _learn_to_see(
    recipe: Recipe, learned: Learned, encoder: Encoder, sketch: Sketch, walks: Walks, bearings: Floats,
    random: np.random.Generator, say: Say,
) -> None:  # fmt: skip
    pictures = walks.pictures.reshape(-1, *walks.pictures.shape[2:])
    size = recipe.config.clip.size
    placed: list[float] = []
    where = Affine(learned, "where", bearings.shape[1], recipe.config.encoder.width)
    with torch.no_grad():
        scene = pictures[:: max(1, len(pictures) // 1000)].mean(axis=0) / 255
        learned.parameters["sketch.scene"].copy_(torch.from_numpy(scene).permute(2, 0, 1))

    def loss() -> Tensor:
        chosen = random.integers(0, len(pictures), recipe.seeing_batch)
        shown, place = torch.from_numpy(pictures[chosen]), torch.from_numpy(bearings[chosen])
        tokens = encoder(normalised(shown, size, "square")[:, None])
        wanted = shown.permute(0, 3, 1, 2).float() / 255
        off = (where(tokens) - place[:, None]).abs().mean(dim=(0, 1))
        placed[:] = off.tolist()
        return F.l1_loss(sketch(tokens), wanted) + recipe.where * off.mean()

    for step, value in descent(learned.within("encoder.", "sketch.", "where."), recipe.rate, recipe.seeing_steps, loss):
        say(f"seeing {step}: error {value:.4f}, of the place {', '.join(f'{each:.3f}' for each in placed)}")


@torch.no_grad()
def encoded(encoder: Encoder, walks: Walks, config: WorldConfig) -> Tensor:
    """[episodes, frames, patches, width]."""
    pictures = torch.from_numpy(walks.pictures)
    found = [
        encoder(normalised(part, config.clip.size, "square")[:, None]) for part in pictures.flatten(0, 1).split(256)
    ]
    tokens: Tensor = torch.cat(found).unflatten(0, pictures.shape[:2])
    return tokens


def _learn_to_imagine(
    recipe: Recipe, learned: Learned, network: ActionPredictor, tokens: Tensor, walks: Walks,
    random: np.random.Generator, say: Say,
) -> None:  # fmt: skip
    steps = recipe.config.clip.steps
    actions = torch.from_numpy(walks.actions)
    states = torch.from_numpy(walks.states)
    last = tokens.shape[1] - steps

    def window() -> tuple[Tensor, Tensor, Tensor]:
        """Of `steps` predictions: one frame more than actions and states."""
        episode = torch.from_numpy(random.integers(0, len(tokens), recipe.imagining_batch))[:, None]
        start = torch.from_numpy(random.integers(0, last, recipe.imagining_batch))[:, None]
        frames = start + torch.arange(steps)
        moved = actions[episode, frames]
        at = states[episode, start] + F.pad(moved[:, :-1], (0, 0, 1, 0)).cumsum(dim=1)  # as a plan integrates them
        return tokens[episode, start + torch.arange(steps + 1)], moved, at

    def loss() -> Tensor:
        seen, moved, at = window()
        forced = predict(network, seen[:, :-1], moved, at)
        own = torch.cat((seen[:, :1], forced[:, :-1]), dim=1)
        return F.l1_loss(forced, seen[:, 1:]) + F.l1_loss(predict(network, own, moved, at), seen[:, 1:])

    for step, value in descent(learned.within("predictor."), recipe.rate, recipe.imagining_steps, loss):
        say(f"imagining {step}: error of a token, from frames seen and from imagined ones together {value:.4f}")
    with torch.no_grad():
        for step, (error, copy) in enumerate(errors(network, *window()), 1):
            say(f"imagined frame {step}: error {error:.4f}, of the first frame itself {copy:.4f}")


def rollout(network: ActionPredictor, first: Tensor, moved: Tensor, at: Tensor) -> Tensor:
    """From frames [n, 1, patches, width], actions and states [n, steps, …] → the frames imagined [n, steps, …]."""
    frames = first
    for step in range(moved.shape[1]):
        after = predict(network, frames, moved[:, : step + 1], at[:, : step + 1])[:, -1:]
        frames = torch.cat((frames, after), dim=1)
    return frames[:, 1:]


def errors(network: ActionPredictor, seen: Tensor, moved: Tensor, at: Tensor) -> Iterator[tuple[float, float]]:
    """Per frame of a rollout: its mean absolute error, and that of the frame that it began with."""
    found = rollout(network, seen[:, :1], moved, at)
    for after, wanted in zip(found.unbind(1), seen[:, 1:].unbind(1), strict=True):
        yield float((after - wanted).abs().mean()), float((seen[:, 0] - wanted).abs().mean())


@torch.no_grad()
def to_paint(network: ActionPredictor, tokens: Tensor, walks: Walks, bearings: Floats) -> Painted:
    """Every frame of the walks: as it was seen, and as imagined from an episode's first frame and from a later one."""
    steps, (episodes, frames) = network.config.clip.steps, tokens.shape[:2]
    moves, states = torch.from_numpy(walks.actions), torch.from_numpy(walks.states)
    numbers = torch.arange(episodes * frames).unflatten(0, (episodes, frames))
    given, shown = [tokens.flatten(0, 1)], [numbers.flatten()]
    for start in sorted({0, frames - steps - 1}):
        for some in torch.arange(episodes).split(EPISODES):
            moved = moves[some, start : start + steps]
            at = states[some, start : start + 1] + F.pad(moved[:, :-1], (0, 0, 1, 0)).cumsum(dim=1)
            given.append(rollout(network, tokens[some, start : start + 1], moved, at).flatten(0, 1))
            shown.append(numbers[some, start + 1 : start + 1 + steps].flatten())
    pictures = walks.pictures.reshape(-1, *walks.pictures.shape[2:])
    return Painted(torch.cat(given), torch.cat(shown), torch.from_numpy(bearings)[torch.cat(shown)], pictures)


def save(folder: Path, config: WorldConfig, learned: Learned) -> None:
    """`config.json` and `model.safetensors`, as the family reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = ("encoder.", "predictor.", "decoder.")
    tensors = {name: each.detach().contiguous() for name, each in learned.parameters.items() if name.startswith(kept)}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(described(config), indent=2) + "\n", encoding="utf-8")


def described(config: WorldConfig) -> dict[str, object]:
    """The sizes as `read_world_config` reads them."""
    clip, planner, usual = config.clip, asdict(config.planner), asdict(Planner())
    chosen = {each.name: planner[each.name] for each in fields(Planner) if planner[each.name] != usual[each.name]}
    return {
        "model_type": "vjepa2_ac",
        "motion": config.motion,
        "rate": config.rate,
        "decoder": config.decoder,
        "encoder": {
            "img_size": clip.size, "patch_size": clip.patch, "tubelet_size": clip.tubelet,
            **_sizes(config.encoder, "embed_dim"),
        },
        "predictor": {
            "num_frames": clip.frames, **_sizes(config.predictor, "predictor_embed_dim"),
            "action_embed_dim": config.action, "state_embed_dim": config.state,
        },
        "planner": chosen,
    }  # fmt: skip


def _sizes(stack: Transformer, width: str) -> dict[str, object]:
    return {width: stack.width, "depth": stack.depth, "num_heads": stack.heads, "mlp_ratio": stack.hidden / stack.width}
