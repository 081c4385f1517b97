"""V-JEPA 2-AC against what the published code gives for the same weights; cached rollouts against a re-prefill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.vjepa2.config import TINY_WORLD, WorldConfig, read_world_config
from models.vjepa2.motion import between, moved
from models.vjepa2.network import Encoder, centred
from models.vjepa2.nodes.imagining import ImaginingSubmodule
from models.vjepa2.planning import POSE, Planner, draw, energies_of, first_belief, plan_of, refit
from models.vjepa2.weights import Drawn, Loaded, read_weights
from models.vjepa2.world import ActionPredictor, Frames
from mstar.engine.api import Completed, Firing
from mstar.engine.kv_engine import KVCacheEngine
from mstar.submodule import Row
from mstar.tensors import Value
from tests.parity.dense_attention import DenseCache

DATA = Path(__file__).parent.parent / "data" / "vjepa2_ac"
INPUTS = load_file(DATA / "inputs.safetensors")
OUTPUTS = load_file(DATA / "outputs.safetensors")


def close(got: Tensor | np.ndarray, wanted: Tensor, tolerance: float = 2e-4) -> None:
    torch.testing.assert_close(torch.as_tensor(got), wanted, atol=tolerance, rtol=0)


@pytest.fixture(scope="module", params=["Meta's .pt", "safetensors"])
def weights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    if request.param == "Meta's .pt":
        return read_weights(DATA / "vjepa2-ac.pt")
    parts = torch.load(DATA / "vjepa2-ac.pt", weights_only=True)
    file = tmp_path_factory.mktemp("ac") / "model.safetensors"
    save_file(
        {
            f"{part}.{name.removeprefix('module.').removeprefix('backbone.')}": tensor.contiguous()
            for part in ("encoder", "predictor")
            for name, tensor in parts[part].items()
        },
        file,
    )
    return read_weights(file)


@pytest.fixture(scope="module")
def config() -> WorldConfig:
    return read_world_config(DATA)


@pytest.fixture(scope="module")
def predictor(weights: Loaded, config: WorldConfig) -> ActionPredictor:
    return ActionPredictor(weights, config)


def prefilled(network: ActionPredictor, tokens: Tensor, actions: Tensor, states: Tensor) -> Tensor:
    """The published method: all frames at once under the block mask; [batch, frames, patches, width], as it comes."""
    size, (batch, frames) = network.config.frame_tokens, tokens.shape[:2]
    found = []
    for one in range(batch):
        row = Row(0, frames * size, causal=False, blocks=(size,) * frames)
        seen = Frames(tokens[one : one + 1], actions[one : one + 1], states[one : one + 1], 0)
        [hidden] = network.forward([seen], DenseCache().step(["a"], [row]))
        found.append(network.predicted(hidden))
    return torch.cat(found)


def imagine(
    submodule: ImaginingSubmodule, tokens: Tensor, moves: Tensor, poses: Tensor, given: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Every frame by appending it to the cache: tokens [candidates, frames, patches, width], poses."""
    engine = KVCacheEngine({"rollout": submodule})
    step: Mapping[str, Value] = {"tokens": tokens, "poses": poses.numpy()}
    if given is not None:
        step = {**step, "given": given.numpy()}
    found, stopped = [], False
    for _ in range(moves.shape[1] - tokens.shape[1] + 1):
        [outcome] = engine.step([Firing("s", "s.0", "rollout", "rollout", {"step": step, "moves": moves.numpy()})])
        assert isinstance(outcome, Completed), outcome
        after = outcome.outputs["step"]
        assert isinstance(after, Mapping)
        step = after
        assert isinstance(step["tokens"], Tensor)
        found.append(step["tokens"])
        stopped = outcome.stop
    assert stopped == submodule._alone
    engine.end_session("s")
    assert engine.census()["pages_held"] == 0
    return torch.cat(found, dim=1), torch.as_tensor(step["poses"])


def alone(network: ActionPredictor) -> ImaginingSubmodule:
    return ImaginingSubmodule(network, fold=1, sequences=1, alone=True)


def test_frames_are_encoded_each_by_itself(weights: Loaded, config: WorldConfig) -> None:
    encoder = Encoder(weights, config.clip, config.encoder, normalised=True)
    pictures = INPUTS["frames"].transpose(1, 2)  # [2, 3 frames, 3 colours, 64, 64]
    tokens = encoder(pictures.flatten(0, 1)[:, None])
    close(tokens.unflatten(0, (2, 3)).flatten(1, 2), OUTPUTS["encoder_tokens"])


def test_teacher_forced(predictor: ActionPredictor) -> None:
    tokens = OUTPUTS["encoder_tokens"].unflatten(1, (3, 16))
    predicted = prefilled(predictor, tokens, INPUTS["actions"], INPUTS["states"])
    close(predicted.flatten(1, 2), OUTPUTS["teacher_forced"])


def test_rollout_with_integrated_poses(predictor: ActionPredictor) -> None:
    first = OUTPUTS["encoder_tokens"].unflatten(1, (3, 16))[:, :1]
    for one in range(2):
        own = slice(one, one + 1)
        tokens, poses = imagine(alone(predictor), first[own], INPUTS["actions"][own], INPUTS["states"][own, :1])
        close(torch.cat((first[own], tokens), dim=1), OUTPUTS["rollout_tokens"][own])
        close(poses, OUTPUTS["rollout_poses"][own], 1e-5)


def test_actions_and_poses_are_each_others_inverse() -> None:
    states = INPUTS["states"][0].numpy()
    close(between(states[:1], states[1:2])[0], OUTPUTS["poses_to_diff"], 1e-5)
    moves = between(states[:2], states[1:])
    close(moved("pose", states[:2], moves), INPUTS["states"][0, 1:], 1e-6)


def test_cross_entropy_method_with_given_noise(predictor: ActionPredictor) -> None:
    frames = OUTPUTS["encoder_tokens"].unflatten(1, (3, 16))[0]
    planner = Planner(horizon=2, samples=12, topk=4, iterations=3)
    submodule = ImaginingSubmodule(predictor, fold=5, sequences=3, alone=False)
    belief = first_belief(planner, POSE)
    for noise in INPUTS["cem_noise"].numpy():
        moves = draw(planner, POSE, belief, noise)
        tokens, _ = imagine(submodule, frames[None, :1], torch.from_numpy(moves), INPUTS["states"][:1, :1])
        energies = [(tokens[:, h] - frames[2]).abs().mean(dim=(1, 2)).numpy() for h in range(2)]
        belief, _ = refit(planner, POSE, belief, moves, energies_of("last", energies))
    close(plan_of(POSE, belief), OUTPUTS["cem_action"][0])


@pytest.mark.parametrize(("steps", "tolerance"), [(6, 1e-5), (30, 1e-4)])
@pytest.mark.parametrize("context", [1, 2])
def test_cached_rollout_equals_prefilling_all_frames_at_every_step(steps: int, tolerance: float, context: int) -> None:
    network = ActionPredictor(Drawn(3), TINY_WORLD)
    random = torch.Generator().manual_seed(5)
    tokens = centred(torch.randn((1, context, 16, 48), generator=random))
    actions = 0.1 * torch.randn((1, context - 1 + steps, 7), generator=random)
    states = torch.rand((1, context - 1 + steps, 7), generator=random)
    found, _ = imagine(alone(network), tokens, actions, states[:, :context], given=states)
    frames = tokens
    for count in range(context, context + steps):
        predicted = prefilled(network, frames, actions[:, :count], states[:, :count])
        frames = torch.cat((frames, centred(predicted[:, -1:])), dim=1)
    close(found, frames[:, context:], tolerance)


def test_what_is_cached_of_the_first_frame_depends_on_its_action() -> None:
    """So candidates can not share it."""
    network = ActionPredictor(Drawn(3), TINY_WORLD)
    tokens = centred(torch.randn((1, 1, 16, 48), generator=torch.Generator().manual_seed(5)))
    states = torch.zeros(1, 1, 7)
    caches = []
    for size in (0.0, 0.5):
        cache = DenseCache()
        row = Row(0, 18, causal=False, blocks=(18,))
        network.forward([Frames(tokens, torch.full((1, 1, 7), size), states, 0)], cache.step(["a"], [row]))
        caches.append(cache.stored)
    (first, _), (other, _) = (cache["a", "main", 0] for cache in caches)
    assert torch.equal(first[2:], other[2:])  # patches in the first layer
    (first, _), (other, _) = (cache["a", "main", 1] for cache in caches)
    assert (first[2:] - other[2:]).abs().max() > 1e-3


@pytest.mark.parametrize(("fold", "sequences"), [(1, 7), (3, 3), (32, 1)])
def test_candidates_do_not_see_one_another(fold: int, sequences: int) -> None:
    network = ActionPredictor(Drawn(3), TINY_WORLD)
    random = torch.Generator().manual_seed(6)
    tokens = centred(torch.randn((1, 1, 16, 48), generator=random))
    moves, pose = 0.3 * torch.randn((7, 3, 7), generator=random), torch.rand((1, 1, 7), generator=random)
    together, poses = imagine(
        ImaginingSubmodule(network, fold=fold, sequences=sequences, alone=False), tokens, moves, pose
    )
    for one in range(7):
        by_itself, own = imagine(alone(network), tokens, moves[one : one + 1], pose)
        close(together[one : one + 1], by_itself, 1e-5)
        close(poses[one : one + 1], own, 1e-6)


def test_a_world_of_plain_sums_moves_by_them() -> None:
    config = replace(TINY_WORLD, action=2, state=2, motion="add")
    network = ActionPredictor(Drawn(3), config)
    tokens = centred(torch.randn((1, 1, 16, 48), generator=torch.Generator().manual_seed(6)))
    moves = torch.tensor([[[0.5, -0.25], [1.0, 0.0], [0.0, 4.0]]])
    _, poses = imagine(alone(network), tokens, moves, torch.zeros(1, 1, 2))
    close(poses[0], torch.tensor([[0.0, 0.0], [0.5, -0.25], [1.5, -0.25], [1.5, 3.75]]), 1e-6)
