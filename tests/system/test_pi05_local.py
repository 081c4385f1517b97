"""π0.5 through the whole runtime in one process on a manual clock."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from models.pi05.config import CAMERAS, read_config
from models.pi05.flow import advance, times
from models.pi05.model import FAMILY
from models.pi05.network import Expert, Eyes, Prefix
from models.pi05.weights import read_weights
from mstar.client import Session
from mstar.client.client import Event, Request
from mstar.local import LocalSystem
from mstar.messages import Emission, RequestEnded
from mstar.submodule import Row
from tests.parity.dense_attention import DenseCache

DATA = Path(__file__).parent.parent / "data" / "pi05"
SAMPLES = range(3)
INPUTS = load_file(DATA / "inputs.safetensors")
OUTPUTS = load_file(DATA / "outputs.safetensors")


@pytest.fixture
def system() -> LocalSystem:
    settings = {"checkpoint": str(DATA), "statistics": "none"}
    return LocalSystem({"pi05": FAMILY.graph({})}, settings={"pi05": settings})


def observation(sample: int) -> dict[str, Any]:
    """A recorded one; a camera that was masked is not there."""
    there = [n for n in range(3) if INPUTS[f"image_mask_{n}"][sample]]
    return {
        "images": {CAMERAS[n]: INPUTS[f"image_{n}"][sample] for n in there},
        "tokens": INPUTS["lang_tokens"][sample][INPUTS["lang_masks"][sample]],
        "noise": INPUTS["noise"][sample],
    }


def start(session: Session, given: Mapping[str, Any], **settings: Any) -> Request:
    return session.start("act", {"observation": given}, settings)


def done(request: Request) -> dict[str, Any]:
    """The one emission of a request that went well."""
    events = request.drain()
    [emission, end] = events
    assert isinstance(emission, Emission)
    assert emission.output == "actions"
    assert isinstance(end, RequestEnded)
    assert end.status == "done"
    found: dict[str, Any] = emission.value
    return found


def end_of(events: list[Event]) -> RequestEnded:
    [end] = events
    assert isinstance(end, RequestEnded)
    return end


def alone(given: Mapping[str, Any], **settings: Any) -> np.ndarray:
    system = LocalSystem({"pi05": FAMILY.graph({})}, settings={"pi05": {"checkpoint": str(DATA), "statistics": "none"}})
    request = start(system.open("pi05"), given, **settings)
    system.run()
    actions: np.ndarray = done(request)["actions"]
    return actions


@pytest.mark.parametrize("sample", SAMPLES)
def test_act_equals_the_published_code(system: LocalSystem, sample: int) -> None:
    request = start(system.open("pi05"), observation(sample))
    system.run()
    found = done(request)
    assert np.abs(found["actions"] - OUTPUTS["actions"][sample]).max() < 5e-4
    assert found["masked"] == [name for n, name in enumerate(CAMERAS) if not INPUTS[f"image_mask_{n}"][sample]]
    assert found["frozen"] == 0


def test_sessions_in_one_batch_get_what_each_gets_alone(system: LocalSystem) -> None:
    sessions = [system.open("pi05", trace=True) for _ in SAMPLES]
    batches: list[tuple[Any, Any]] = []
    for session in sessions:
        session.on_trace = lambda traced: batches.extend((row[3], row[5]) for row in traced.records)
    requests = [start(session, observation(sample)) for sample, session in enumerate(sessions)]
    system.run()
    for sample, request in enumerate(requests):
        assert np.abs(done(request)["actions"] - alone(observation(sample))).max() < 1e-5
    assert {batch for node, batch in batches if node == "vit_encoder"} == {3}
    assert batches.count(("LLM", 3)) == 3 * (1 + 10)


def test_fewer_flow_steps(system: LocalSystem) -> None:
    config, weights = read_config(DATA), read_weights(DATA)
    eyes, prefix, expert = Eyes(config, weights), Prefix(config, weights), Expert(config, weights)
    given = observation(2)
    pictures = torch.from_numpy(np.stack(list(given["images"].values())))
    x = torch.cat((eyes(pictures).flatten(0, 1), prefix.embed(torch.from_numpy(given["tokens"]))))
    cache = DenseCache()
    prefix.prefill(x, cache.step(["a"], [Row(0, len(x), causal=False)]))
    actions = torch.from_numpy(given["noise"])[None]
    modulation = expert.modulation(times(3)[:-1])
    for step in range(3):
        attention = cache.step(["a"], [Row(0, config.horizon, causal=False, store=False)])
        velocity = expert.velocity(actions, modulation[step : step + 1], attention)
        actions = advance(actions[0], velocity[0], step, 3)[None]
    request = start(system.open("pi05"), given, flow_steps=3)
    system.run()
    assert np.abs(done(request)["actions"] - actions[0].numpy()).max() < 1e-5


def test_the_same_seed_draws_the_same_noise(system: LocalSystem) -> None:
    given = {name: value for name, value in observation(0).items() if name != "noise"}
    session = system.open("pi05")
    requests = [start(session, given, seed=seed) for seed in (5, 5, 6)]
    system.run()
    one, same, other = (done(request)["actions"] for request in requests)
    assert np.abs(one - same).max() < 1e-5
    assert np.abs(one - other).max() > 0.1


def test_an_observation_seen_before_is_read_from_the_cache_and_any_other_is_not(system: LocalSystem) -> None:
    session = system.open("pi05")
    changed = observation(0)
    changed["images"] = {name: picture.copy() for name, picture in changed["images"].items()}
    changed["images"][CAMERAS[2]][0, -1, -1] *= -1  # the last pixel seen: all keys before are the same
    [worker] = system.workers.values()
    reused, found = [], []
    for given in (observation(0), observation(0), changed):
        before = worker._engines["pi05/LLM"].counters()["reused_tokens"]
        request = start(session, given)
        system.run()
        found.append(done(request)["actions"])
        reused.append(worker._engines["pi05/LLM"].counters()["reused_tokens"] - before)
    assert reused == [0, 3 * 9 + 12, 0]
    assert np.array_equal(found[1], found[0])
    assert np.abs(found[2] - alone(changed)).max() < 1e-5


def test_a_masked_camera_has_no_influence_wherever_it_stands(system: LocalSystem) -> None:
    given = observation(2)
    with_none = {**given, "images": {**given["images"], CAMERAS[1]: None}}
    turned = {**given, "images": dict(reversed(list(given["images"].items())))}
    session = system.open("pi05")
    found = []
    for each in (given, with_none, turned):
        request = start(session, each)
        system.run()
        found.append(done(request)["actions"])
    assert np.abs(found[1] - found[0]).max() < 1e-5
    assert np.abs(found[2] - found[0]).max() < 1e-5


def test_a_chunk_goes_on_from_the_one_before(system: LocalSystem) -> None:
    session = system.open("pi05")
    free = alone(observation(1))
    previous = alone(observation(0))[2:]  # two of its rows are done
    request = start(session, {**observation(1), "prev_chunk": previous, "delay_steps": 2})
    system.run()
    found = done(request)
    assert found["frozen"] == 2
    assert np.array_equal(found["actions"][:2], previous[:2])
    distance = np.abs(found["actions"][:5] - previous).mean(axis=1)
    without = np.abs(free[:5] - previous).mean(axis=1)
    assert (distance[2:4] < without[2:4]).all()
    assert distance[2] < 0.5 * without[2]
    loose = start(session, {**observation(1), "prev_chunk": previous[:0], "delay_steps": 0})
    system.run()
    assert np.abs(done(loose)["actions"] - free).max() < 1e-5


@pytest.mark.parametrize("turns", [2, 4, 8, 11])
def test_a_cancelled_request_leaves_nothing(system: LocalSystem, turns: int) -> None:
    baseline = system.census()
    session = system.open("pi05")
    request = start(session, observation(0))
    for _ in range(turns):
        system.turn()
    request.interrupt()
    system.run()
    assert end_of(request.drain()).status == "cancelled"
    cached = system.census()
    assert (cached["requests"], cached["cursors"], cached["engine_sequences"]) == (0, 0, 0)
    system.close(session)
    assert system.census() == baseline


@pytest.mark.parametrize(
    ("changed", "settings", "code", "named"),
    [
        ({"images": {}}, {}, "missing_key", "images/base_0_rgb"),
        ({"images": {CAMERAS[0]: np.zeros((3, 3))}}, {}, "wrong_shape", "images/base_0_rgb has shape"),
        ({"joints": [0]}, {}, "unknown_key", "joints"),
        ({"tokens": [999]}, {}, "invalid_value", "tokens"),
        ({"tokens": list(range(13))}, {}, "context_length_exceeded", "13 tokens, the policy takes 12"),
        ({"tokens": None, "prompt": "go", "state": [0.0]}, {}, "no_tokenizer", "tokens"),
        ({"delay_steps": 3}, {}, "invalid_value", "delay_steps"),
        ({}, {"flow_steps": 11}, "invalid_value", "flow_steps"),
        ({}, {"flow_steps": 0}, "invalid_value", "flow_steps"),
        ({}, {"flow_steps": "two"}, "invalid_value", "flow_steps"),
    ],
)
def test_a_bad_observation_is_refused_by_its_key_and_no_one_else_is(
    system: LocalSystem, changed: dict[str, Any], settings: dict[str, Any], code: str, named: str
) -> None:
    session, other = system.open("pi05"), system.open("pi05")
    bad = start(session, {**observation(0), **changed}, **settings)
    good = start(other, observation(1))
    system.run()
    end = end_of(bad.drain())
    assert (end.status, end.code) == ("failed", code)
    assert named in end.cause
    assert np.abs(done(good)["actions"] - OUTPUTS["actions"][1]).max() < 5e-4


def test_a_droid_client_gets_actions_in_its_own_units(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(DATA / name, tmp_path)
    low, high = np.linspace(-3, -1, 8), np.linspace(1, 5, 8)
    one = {"q01": low.tolist(), "q99": high.tolist()}
    (tmp_path / "norm_stats.json").write_text(json.dumps({"norm_stats": {"state": one, "actions": one}}))
    settings = {"checkpoint": str(tmp_path), "robot": "droid"}
    system = LocalSystem({"pi05": FAMILY.graph({})}, settings={"pi05": settings})
    given = observation(1)  # no third camera
    sent = {
        "observation/exterior_image_1_left": given["images"][CAMERAS[0]],
        "observation/wrist_image_left": given["images"][CAMERAS[1]],
        "observation/joint_position": np.zeros(7),
        "observation/gripper_position": np.zeros(1),
        "tokens": given["tokens"],
        "noise": given["noise"],
    }
    session = system.open("pi05")
    request = start(session, sent)
    system.run()
    found = done(request)["actions"]
    wanted = (OUTPUTS["actions"][1][:, :8] + 1) / 2 * (high - low + 1e-6) + low
    assert np.abs(found - wanted).max() < 5e-4 * (high - low).max()
    again = start(session, {**sent, "prev_chunk": found[3:], "delay_steps": 4})
    system.run()
    assert np.array_equal(done(again)["actions"][:4], found[3:])


def test_the_tiny_policy_acts_on_words_pictures_and_state() -> None:
    system = LocalSystem({"pi05": FAMILY.graph({})}, settings={"pi05": {"tiny": True, "robot": "libero"}})
    session = system.open("pi05")
    picture = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    sent = {"observation/image": picture, "observation/state": np.zeros(8), "prompt": "pick up the cup"}
    found = []
    for changed in ({}, {"prompt": "open the door"}, {"observation/state": np.full(8, 0.5)}):
        request = start(session, {**sent, **changed}, seed=1)
        system.run()
        found.append(done(request)["actions"])
    assert found[0].shape == (10, 7)
    assert np.isfinite(found[0]).all()
    assert np.abs(found[1] - found[0]).max() > 1e-4
    assert np.abs(found[2] - found[0]).max() > 1e-4
