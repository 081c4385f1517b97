"""Training of a world model: what it learns, that it is what is served, and that it can be read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from models.vjepa2.config import SHIPPED, Clip, Transformer, WorldConfig, read_world_config
from models.vjepa2.network import Encoder
from models.vjepa2.nodes.checkpoints import world
from models.vjepa2.pictures import PixelDecoder, normalised, picture_of
from models.vjepa2.weights import Drawn, Loaded
from models.vjepa2.world import ActionPredictor
from models.worlds.arena import walk
from models.worlds.learned import Learned, descent
from models.worlds.recipe import RECIPES, ROOM, Recipe
from models.worlds.training import block_mask, encoded, errors, predict, save, to_paint, train
from tests.arenas import made

SHIPPED_WORLDS = sorted(each.name for each in SHIPPED.iterdir())
SMALL: Recipe = replace(
    ROOM,
    config=replace(
        ROOM.config,
        clip=Clip(size=64, patch=16, tubelet=2, frames=4),
        encoder=Transformer(24, 1, 2, 48),
        predictor=Transformer(24, 1, 2, 48),
    ),
    episodes=20,
    frames=3,
    seeing_steps=6,
    seeing_batch=8,
    imagining_steps=6,
    imagining_batch=8,
    painting_steps=4,
)


class Kept:
    """The weights as they are after training."""

    dtype = torch.float32

    def __init__(self, learned: Learned) -> None:
        self._learned = learned

    def take(self, name: str, *shape: int) -> torch.Tensor:
        return self._learned.parameters[name]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def quiet(_: str) -> None:
    """No progress."""


def test_the_same_seed_trains_the_same_weights_and_another_one_does_not() -> None:
    first, again, other = (train(SMALL, seed, quiet).parameters for seed in (1, 1, 2))
    name = "predictor.predictor_proj.weight"
    for key, value in first.items():
        torch.testing.assert_close(value, again[key], rtol=0, atol=0)
    assert not torch.equal(first[name], other[name])


def test_what_was_trained_is_read_as_any_checkpoint(tmp_path: Path) -> None:
    learned = train(SMALL, 1, quiet)
    save(tmp_path, SMALL.config, learned)
    assert read_world_config(tmp_path) == SMALL.config
    found = world({"world": str(tmp_path)})
    picture = torch.from_numpy(SMALL.arena().picture())
    pixels = normalised(picture[None], 64, "square")[:, None]
    trained = Encoder(Kept(learned), SMALL.config.clip, SMALL.config.encoder, normalised=True)
    torch.testing.assert_close(trained(pixels).detach(), found.encoder(pixels), rtol=0, atol=0)
    assert found.decoder is not None
    assert not any(name.startswith(("where", "sketch")) for name in load_file(tmp_path / "model.safetensors"))


def test_a_token_sees_its_own_frame_and_those_before() -> None:
    seen = block_mask(3, 2)
    assert seen.int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1],
    ]
    config = SMALL.config
    network = ActionPredictor(Drawn(1), config)
    random = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, 2, 16, 24, generator=random)
    moves, states = torch.randn(2, 2, 2, generator=random), torch.randn(2, 2, 2, generator=random)
    both = predict(network, tokens, moves, states)
    changed = tokens.clone()
    changed[:, 1] += 1
    after = predict(network, changed, moves, states)
    torch.testing.assert_close(after[:, 0], both[:, 0])
    assert (after[:, 1] - both[:, 1]).abs().max() > 1e-3
    for one in range(2):  # sequences do not see one another
        own = slice(one, one + 1)
        torch.testing.assert_close(predict(network, tokens[own], moves[own], states[own]), both[own])


def test_descent_finds_the_least_and_says_how_it_goes() -> None:
    learned = Learned(0)
    place = learned.take("place", 3)
    wanted = torch.tensor((1.0, -2.0, 0.5))
    said = list(descent(learned.within("place"), 0.1, 300, lambda: (place - wanted).square().mean()))
    assert [step for step, _ in said] == [250, 300]
    assert said[-1][1] < 0.01
    torch.testing.assert_close(place.detach(), wanted, atol=0.05, rtol=0)


@pytest.mark.parametrize("name", SHIPPED_WORLDS)
def test_a_shipped_world_imagines_better_than_that_nothing_changes(name: str) -> None:
    """On walks that it was not trained on, up to the longest that it was trained for."""
    config = RECIPES[name].config
    found = world({"world": name})
    assert found.config == config
    arena = made(RECIPES[name].arena)
    walks = walk(arena, 24, config.clip.steps + 1, np.random.default_rng(99))
    tokens = encoded(found.encoder, walks, config)
    moves = torch.from_numpy(walks.actions[:, :-1])
    at = torch.from_numpy(walks.states[:, :1]) + torch.nn.functional.pad(moves[:, :-1], (0, 0, 1, 0)).cumsum(dim=1)
    with torch.no_grad():
        found_errors = list(errors(found.predictor, tokens, moves, at))
    assert len(found_errors) == config.clip.steps
    for error, copy in found_errors:
        assert error < 0.4 * copy


@pytest.mark.parametrize("name", SHIPPED_WORLDS)
def test_a_shipped_world_shows_what_it_has_seen(name: str) -> None:
    recipe, found = RECIPES[name], world({"world": name})
    arena = made(recipe.arena)
    assert found.decoder is not None
    walks = walk(arena, 16, 1, np.random.default_rng(98))
    pictures = walks.pictures[:, 0].astype(float)
    shown = np.stack([picture_of(found.decoder(each[0])) for each in encoded(found.encoder, walks, recipe.config)])
    still = pictures.mean(axis=0)
    own, nothing = (np.square(pictures - each).mean() for each in (shown, still))
    other = np.square(pictures - np.roll(shown, 1, axis=0)).mean()
    assert own < 0.6 * nothing < other


@pytest.mark.parametrize("name", SHIPPED_WORLDS)
def test_a_shipped_world_shows_what_it_imagines(name: str) -> None:
    """Nearer to what the camera then sees than the mean of all pictures is, let alone what another walk leads to."""
    recipe, found = RECIPES[name], world({"world": name})
    assert found.decoder is not None
    arena = made(recipe.arena)
    walks = walk(arena, 24, recipe.config.clip.steps + 1, np.random.default_rng(97))
    tokens = encoded(found.encoder, walks, recipe.config)
    frames = to_paint(found.predictor, tokens, walks, arena.bearings(walks.states.reshape(-1, arena.size)))
    imagined = slice(tokens.shape[0] * tokens.shape[1], None)
    seen = frames.pictures[frames.shown[imagined].numpy()].astype(float)
    shown = np.stack([picture_of(found.decoder(each)) for each in frames.tokens[imagined]])
    own, other, still = (
        np.square(seen - each).mean() for each in (shown, np.roll(shown, 3, axis=0), seen.mean(axis=0))
    )
    assert own < 0.7 * still < other
    read = found.decoder.where(frames.tokens[imagined])
    assert (read - frames.places[imagined]).abs().mean() < 0.1


def test_a_decoder_without_weights_is_refused_by_name(tmp_path: Path) -> None:
    save(tmp_path, replace(SMALL.config, decoder=0), Learned(0))
    assert not read_world_config(tmp_path).decoder
    with pytest.raises(Exception, match=r"decoder\.scene is missing"):
        PixelDecoder(Loaded(tmp_path, {}), SMALL.config.clip, 24, 2)


def test_sizes_come_back_from_a_config() -> None:
    for recipe in RECIPES.values():
        assert isinstance(recipe.config, WorldConfig)
        assert recipe.config.clip.steps >= recipe.config.planner.horizon
        assert recipe.config.planner.objective == "mean"
