"""Training of a world model of the V-JEPA 2-AC shape, through the networks that serve it.

First the encoder, together with a decoder of pixels: a picture has to come back from its tokens, and each token has to
say where the robot is, which its own sensors recorded beside the picture. Without that, tokens of two places that have
nothing in common are equally far apart wherever these are, and a planner finds no way from the one to the other.

Then, with the encoder as it is, the predictor: the next frame's tokens from those seen (teacher forcing), and from
those that it predicted itself, by the mean absolute error, as V-JEPA 2 does (Assran et al. 2025, section 3.1).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from models.vjepa2.config import Transformer, WorldConfig
from models.vjepa2.network import Affine, Encoder, centred
from models.vjepa2.pictures import PixelDecoder, normalised
from models.vjepa2.planning import Planner
from models.vjepa2.world import ActionPredictor, Frames
from models.worlds.arena import Floats, Walks, walk
from models.worlds.recipe import Recipe
from mstar.submodule import Row

Say = Callable[[str], None]
WARM_STEPS = 100
SPREAD = 0.02
"""Standard deviation of fresh weights."""
FITTED = 3000
"""Pictures that the decoder is fitted to in the end."""
EVERY = 250
"""Steps between two lines of progress."""


class Learned:
    """Weights that a network takes, and that are trained: `parameters` by name."""

    dtype = torch.float32

    def __init__(self, seed: int) -> None:
        self.parameters: dict[str, nn.Parameter] = {}
        self._generator = torch.Generator().manual_seed(seed)

    def take(self, name: str, *shape: int) -> Tensor:
        if "norm" in name:
            values = torch.full(shape, float(name.endswith("weight")))
        elif len(shape) == 1:
            values = torch.zeros(shape)
        else:
            values = torch.randn(shape, generator=self._generator) * SPREAD
        self.parameters[name] = nn.Parameter(values)
        return self.parameters[name]

    def within(self, *prefixes: str) -> list[nn.Parameter]:
        """Those whose names begin with one of these."""
        return [parameter for name, parameter in self.parameters.items() if name.startswith(prefixes)]


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
    decoder = PixelDecoder(learned, config.clip, config.encoder.width)
    network = ActionPredictor(learned, config)
    _learn_to_see(recipe, learned, encoder, decoder, walks, bearings, random, say)
    tokens = encoded(encoder, walks, config)
    fit_decoder(learned.parameters, tokens, walks, config)
    _learn_to_imagine(recipe, learned, network, tokens, walks, random, say)
    say(f"trained in {time.monotonic() - began:.0f} s")
    return learned


def _learn_to_see(
    recipe: Recipe, learned: Learned, encoder: Encoder, decoder: PixelDecoder, walks: Walks, bearings: Floats,
    random: np.random.Generator, say: Say,
) -> None:  # fmt: skip
    pictures = walks.pictures.reshape(-1, *walks.pictures.shape[2:])
    size = recipe.config.clip.size
    placed: list[float] = []
    where = Affine(learned, "where", bearings.shape[1], recipe.config.encoder.width)
    with torch.no_grad():
        scene = pictures[:: max(1, len(pictures) // 1000)].mean(axis=0) / 255
        learned.parameters["decoder.scene"].copy_(torch.from_numpy(scene).permute(2, 0, 1))

    def loss() -> Tensor:
        chosen = random.integers(0, len(pictures), recipe.seeing_batch)
        shown, place = torch.from_numpy(pictures[chosen]), torch.from_numpy(bearings[chosen])
        tokens = encoder(normalised(shown, size, "square")[:, None])
        wanted = shown.permute(0, 3, 1, 2).float() / 255
        off = (where(tokens) - place[:, None]).abs().mean(dim=(0, 1))
        placed[:] = off.tolist()
        return F.l1_loss(decoder(tokens), wanted) + recipe.where * off.mean()

    for step, value in descent(
        learned.within("encoder.", "decoder.", "where."), recipe.rate, recipe.seeing_steps, loss
    ):
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


@torch.no_grad()
def fit_decoder(parameters: Mapping[str, Tensor], tokens: Tensor, walks: Walks, config: WorldConfig) -> None:
    """The decoder's matrix by least squares, for the tokens as they are in the end.

    Who is asked for the least absolute error leaves out what is thin: most of the time it is not there.
    """
    clip = config.clip
    chosen = slice(None, None, max(1, tokens[..., 0, 0].numel() // FITTED))
    pictures = torch.from_numpy(walks.pictures.reshape(-1, *walks.pictures.shape[2:])[chosen])
    off = pictures.permute(0, 3, 1, 2).float() / 255 - parameters["decoder.scene"]
    patched = off.unflatten(-1, (clip.grid, clip.patch)).unflatten(-3, (clip.grid, clip.patch))
    wanted = patched.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(0, 2)  # [tokens, 3 · patch²]
    given = F.pad(tokens.flatten(0, 1)[chosen].flatten(0, 1), (0, 1), value=1.0)
    solution = torch.linalg.lstsq(given, wanted).solution
    parameters["decoder.pixels.weight"].copy_(solution[:-1].T)
    parameters["decoder.pixels.bias"].copy_(solution[-1])


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


def errors(network: ActionPredictor, seen: Tensor, moved: Tensor, at: Tensor) -> Iterator[tuple[float, float]]:
    """Per frame of a rollout: its mean absolute error, and that of the frame that it began with."""
    frames = seen[:, :1]
    for step in range(moved.shape[1]):
        after = predict(network, frames, moved[:, : step + 1], at[:, : step + 1])[:, -1:]
        frames = torch.cat((frames, after), dim=1)
        wanted = seen[:, step + 1]
        yield float((after[:, 0] - wanted).abs().mean()), float((seen[:, 0] - wanted).abs().mean())


def descent(
    parameters: list[nn.Parameter], rate: float, steps: int, loss: Callable[[], Tensor]
) -> Iterator[tuple[int, float]]:
    """AdamW with a warm-up and a cosine; gives every so often the step and the mean loss since the last."""
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=1e-3)
    total = 0.0
    for step in range(1, steps + 1):
        warm = min(1.0, step / WARM_STEPS)
        for group in optimiser.param_groups:
            group["lr"] = rate * warm * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        value = loss()
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        total += float(value.detach())
        if step % EVERY == 0 or step == steps:
            yield step, total / (EVERY if step % EVERY == 0 else step % EVERY)
            total = 0.0


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
