"""V-JEPA 2 and its planner in the whole runtime, in one process, with random weights of a tiny configuration."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from models.vjepa2.config import TINY_WORLD
from models.vjepa2.model import FAMILY
from models.vjepa2.nodes.checkpoints import world
from models.vjepa2.nodes.planning import GOALS
from models.vjepa2.pictures import normalised
from models.vjepa2.planning import Planner
from mstar.client import Session, Slice
from mstar.client.client import Request
from mstar.local import LocalSystem
from mstar.messages import Emission, RequestEnded

TINY: dict[str, Any] = {"tiny": 1}
RANDOM = np.random.default_rng(11)
PICTURES = RANDOM.integers(0, 256, (6, 72, 96, 3), np.uint8)
STATE = np.array([0.1, -0.2, 0.3, 0.0, 0.1, 0.2, 0.5], np.float32)
ACTIONS = RANDOM.normal(0, 0.1, (8, 7)).astype(np.float32)


@pytest.fixture
def system() -> LocalSystem:
    return LocalSystem({"vjepa2": FAMILY.graph(TINY)}, settings={"vjepa2": TINY})


def ask(system: LocalSystem, session: Session, task: str, inputs: dict[str, Any], **settings: Any) -> list[Any]:
    request = session.start(task, inputs, settings)
    system.run()
    return request.drain()


def values(events: list[Any], output: str) -> list[Any]:
    end = events[-1]
    assert isinstance(end, RequestEnded)
    assert end.status == "done", end
    return [event.value for event in events if isinstance(event, Emission) and event.output == output]


def refusal(events: list[Any]) -> RequestEnded:
    [end] = events
    assert isinstance(end, RequestEnded)
    assert end.status == "failed"
    return end


def goal(number: int) -> dict[str, Any]:
    return {"goal": {"image": PICTURES[number]}, "state": STATE}


def rolling(**changed: Any) -> dict[str, Any]:
    return {"frames": PICTURES[:1], "actions": ACTIONS, "states": STATE[None], **changed}


# ----------------------------------------------------------------------------------------------------------- V-JEPA 2


def test_clips_are_encoded_predicted_and_named(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    [latents] = values(ask(system, session, "encode", {"frames": PICTURES}), "latents")
    assert latents.shape == (1, 3 * 16, 48)
    places = np.array([40, 3, 7])
    asked = {"frames": PICTURES, "context": np.arange(32), "target": places}
    [predicted] = values(ask(system, session, "predict", asked), "predicted")
    assert predicted.shape == (3, 48)
    everything = {"frames": PICTURES, "context": np.arange(0), "target": np.arange(0)}
    assert values(ask(system, session, "predict", everything), "predicted")[0].shape == (48, 48)
    [named] = values(ask(system, session, "classify", {"frames": PICTURES}), "classes")
    assert named["label"] == ("still", "moving", "gone")[named["logits"].argmax()]


def test_frames_of_a_world_are_encoded_each_by_itself(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    [together] = values(ask(system, session, "embed", {"frames": PICTURES[:3]}), "latents")
    [single] = values(ask(system, session, "embed", {"frames": PICTURES[1]}), "latents")
    np.testing.assert_allclose(together[1:2], single, atol=1e-5)
    session.feed("camera", 0, PICTURES[:3], rows=True)
    [sliced] = values(ask(system, session, "embed", {"frames": Slice("camera", 1, 3)}), "latents")
    np.testing.assert_allclose(together[1:], sliced, atol=1e-5)


# ------------------------------------------------------------------------------------------------------------ rollouts


def test_a_rollout_goes_as_far_as_it_is_asked_to(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    [long] = values(ask(system, session, "rollout", rolling()), "imagined")
    [short] = values(ask(system, session, "rollout", rolling(), horizon=3), "imagined")
    assert [frame["frame"] for frame in long] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [frame["frame"] for frame in short] == [1, 2, 3]
    for one, other in zip(short, long, strict=False):
        np.testing.assert_allclose(one["tokens"], other["tokens"], atol=1e-6)
        np.testing.assert_allclose(one["state"], other["state"], atol=1e-6)
    np.testing.assert_allclose(long[0]["state"][:3], STATE[:3] + ACTIONS[0, :3], atol=1e-6)


def test_a_streaming_rollout_gives_every_frame_as_it_is_imagined(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    [whole] = values(ask(system, session, "rollout", rolling()), "imagined")
    request = session.start("rollout_streaming", rolling())
    events: list[Any] = []
    seen_at: list[int] = []
    while not request.ended:
        system.turn()
        fresh = request.drain()
        steps = sum(worker.steps for worker in system.workers.values())
        seen_at += [steps] * sum(isinstance(event, Emission) for event in fresh)
        events += fresh
    assert len(set(seen_at)) == len(seen_at) == 8
    for one, other in zip(values(events, "imagined"), whole, strict=True):
        np.testing.assert_array_equal(one["tokens"], other["tokens"])


def test_imagined_frames_come_as_pictures_too(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    session.feed("camera", 0, PICTURES[:3], rows=True)
    asked = rolling(frames=Slice("camera", 2, 3))
    shown = values(ask(system, session, "imagine", asked, horizon=3), "picture")
    [frames] = values(ask(system, session, "rollout", rolling(frames=PICTURES[2]), horizon=3), "imagined")
    decoder = world(TINY).decoder
    assert decoder is not None
    for one, frame in zip(shown, frames, strict=True):
        assert one["frame"] == frame["frame"]
        np.testing.assert_array_equal(one["state"], frame["state"])
        assert one["picture"].shape == (64, 64, 3)
        patches = decoder(torch.tensor(frame["tokens"])).clamp(0, 1).mul(255)
        np.testing.assert_allclose(one["picture"], patches.permute(1, 2, 0).numpy(), atol=0.51)


def test_known_states_take_the_place_of_integrated_ones(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    states = np.stack((STATE, STATE + 1, STATE + 2))
    [imagined] = values(ask(system, session, "rollout", rolling(states=states, actions=ACTIONS[:3])), "imagined")
    np.testing.assert_array_equal(imagined[0]["state"], states[1])
    np.testing.assert_array_equal(imagined[1]["state"], states[2])
    np.testing.assert_allclose(imagined[2]["state"][:3], states[2, :3] + ACTIONS[2, :3], atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "settings", "named"),
    [
        ({"frames": PICTURES[:1].astype(np.float32)}, {}, "frames"),
        ({"actions": ACTIONS[:, :5]}, {}, "actions"),
        ({"actions": np.full((2, 7), np.nan)}, {}, "actions"),
        ({"actions": np.zeros((40, 7))}, {}, "actions"),
        ({"states": np.zeros((9, 7))}, {}, "states"),
        ({"states": np.zeros((1, 3))}, {}, "states"),
        ({"frames": PICTURES[:2]}, {}, "states"),
        ({}, {"horizon": 9}, "horizon"),
        ({}, {"horizon": 0}, "horizon"),
    ],
)
def test_a_rollout_that_can_not_be_is_refused_by_name(
    system: LocalSystem, changed: dict[str, Any], settings: dict[str, Any], named: str
) -> None:
    session = system.open("vjepa2")
    end = refusal(ask(system, session, "rollout", rolling(**changed), **settings))
    assert end.code == "invalid_value"
    assert end.cause.startswith(named)
    assert values(ask(system, session, "rollout", rolling()), "imagined")


# --------------------------------------------------------------------------------------------------------------- plans


def test_every_iteration_gives_a_plan_and_the_last_one_says_so(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    asked = {"observation": PICTURES[0], **goal(1)}
    plans = values(ask(system, session, "plan_image", asked, seed=4), "plan")
    assert [plan["iteration"] for plan in plans] == [1, 2, 3]
    assert [plan["final"] for plan in plans] == [False, False, True]
    assert plans[-1]["actions"].shape == (2, 7)
    assert plans[-1]["energy"] < plans[0]["energy"]
    again = values(ask(system, session, "plan_image", asked, seed=4), "plan")
    np.testing.assert_array_equal(again[-1]["actions"], plans[-1]["actions"])
    for seed in (5, -4):
        other = values(ask(system, session, "plan_image", asked, seed=seed), "plan")
        assert not np.array_equal(other[-1]["actions"], plans[-1]["actions"])


@pytest.mark.parametrize("horizon", [1, 2, 5])
@pytest.mark.parametrize("objective", ["last", "mean"])
def test_a_plan_is_what_the_published_method_finds(system: LocalSystem, horizon: int, objective: str) -> None:
    """The loops of the walk against a plain loop that imagines every candidate by itself, with the same noise."""
    session = system.open("vjepa2")
    noise = np.random.default_rng(2).standard_normal((3, horizon, 24, 4), np.float32)
    asked = {"observation": PICTURES[0], **goal(1)}
    plans = values(ask(system, session, "plan_image", asked, noise=noise, horizon=horizon, objective=objective), "plan")
    found = world(TINY)
    pixels = normalised(torch.from_numpy(PICTURES[:2]), 64, "square")[:, None]
    target = found.encoder(pixels)[1].numpy()
    mean, std = np.zeros((horizon, 4), np.float32), np.array([[0.05, 0.05, 0.05, 1.0]] * horizon, np.float32)
    limit = np.array([0.05, 0.05, 0.05, 0.75], np.float32)
    for iteration in range(3):
        drawn = np.clip(noise[iteration] * std[:, None] + mean[:, None], -limit, limit)
        candidates = np.zeros((24, horizon, 7), np.float32)
        candidates[:, :, [0, 1, 2, 6]] = drawn.transpose(1, 0, 2)
        energies = []
        for candidate in candidates:
            rolled = rolling(actions=candidate)
            [frames] = values(ask(system, session, "rollout", rolled), "imagined")
            distances = [np.abs(frame["tokens"] - target).mean() for frame in frames]
            energies.append(distances[-1] if objective == "last" else np.mean(distances))
        elite = candidates[np.argsort(energies)[:6]][:, :, [0, 1, 2, 6]]
        mean = 0.85 * elite.mean(0) + 0.15 * mean
        std = 0.85 * elite.std(0, ddof=1) + 0.15 * std
        wanted = np.where(np.abs(mean[:, 3]) < 0.25, 0, mean[:, 3])
        np.testing.assert_allclose(plans[iteration]["actions"][:, :3], mean[:, :3], atol=1e-5)
        np.testing.assert_allclose(plans[iteration]["actions"][:, 6], wanted, atol=1e-5)


def test_two_planning_sessions_share_batches_and_each_plans_as_if_alone(system: LocalSystem) -> None:
    def begin(session: Session, number: int) -> Request:
        asked = {"observation": PICTURES[number], **goal(number + 1)}
        return session.start("plan_image", asked, {"seed": number, "samples": 20 + number})

    sessions = [system.open("vjepa2", trace=True) for _ in range(2)]
    batches: Counter[tuple[str, int]] = Counter()
    for session in sessions:
        session.on_trace = lambda traced: batches.update((row[3], row[5]) for row in traced.records)
    requests = [begin(session, number) for number, session in enumerate(sessions)]
    system.run()
    shared = [values(request.drain(), "plan") for request in requests]
    parts = ("frame_encoder", "sample", "imagine", "score", "improve")
    assert all(batches[part, 2] for part in parts)
    assert not any(batches[part, 1] for part in parts)
    for number, plans in enumerate(shared):
        alone = begin(sessions[number], number)
        system.run()
        for one, other in zip(plans, values(alone.drain(), "plan"), strict=True):
            np.testing.assert_allclose(one["actions"], other["actions"], atol=1e-6)


def test_a_deadline_that_has_passed_leaves_the_plan_of_one_iteration(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    asked = {"observation": PICTURES[0], **goal(1)}
    [only] = values(ask(system, session, "plan_image", asked, seed=4, deadline_ms=0.001), "plan")
    whole = values(ask(system, session, "plan_image", asked, seed=4, deadline_ms=1e9), "plan")
    assert (only["final"], only["deadline_hit"], only["iteration"]) == (True, True, 1)
    assert (whole[-1]["final"], whole[-1]["deadline_hit"], len(whole)) == (True, False, 3)
    np.testing.assert_array_equal(only["actions"], whole[0]["actions"])


def test_a_plan_takes_the_newest_picture_of_the_camera(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    waiting = session.start("plan", goal(5), {"seed": 1})
    system.run()
    assert waiting.drain() == []
    for index in range(4):
        session.feed("camera", index, PICTURES[index])
    system.run()
    plans = values(waiting.drain(), "plan")
    assert {plan["observation"] for plan in plans} == {3}
    given = values(ask(system, session, "plan_image", {"observation": PICTURES[3], **goal(5)}, seed=1), "plan")
    assert {plan["observation"] for plan in given} == {-1}
    np.testing.assert_allclose(plans[-1]["actions"], given[-1]["actions"], atol=1e-6)
    past = session.start("plan", goal(5), {"seed": 1}, positions={"camera": 2})
    system.run()
    assert values(past.drain(), "plan")[0]["observation"] == 3


def test_a_newer_observation_supersedes_the_plan_for_an_older_one(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    baseline = system.census()
    old = session.start("plan", goal(5), positions={"camera": 0})
    session.feed("camera", 0, PICTURES[0])
    system.run(lambda: any(isinstance(event, Emission) for event in old._events))
    old.interrupt()
    new = session.start("plan", goal(5), {"seed": 1}, positions={"camera": 1})
    session.feed("camera", 1, PICTURES[1])
    system.run()
    [ended] = old.drain()
    assert isinstance(ended, RequestEnded)
    assert ended.status == "cancelled"
    assert {plan["observation"] for plan in values(new.drain(), "plan")} == {1}
    assert system.census() == baseline


@pytest.mark.parametrize("turns", [3, 9, 17, 25])
@pytest.mark.parametrize("task", ["rollout_streaming", "plan_image"])
def test_cancelling_leaves_nothing(system: LocalSystem, task: str, turns: int) -> None:
    session = system.open("vjepa2")
    baseline = system.census()
    long = rolling(actions=np.zeros((30, 7)))
    asked = long if task == "rollout_streaming" else {"observation": PICTURES[0], **goal(1)}
    request = session.start(task, asked, {"iterations": 20})
    for _ in range(turns):
        system.turn()
    assert not any(isinstance(event, RequestEnded) for event in request.drain())
    request.interrupt()
    assert system.census() == baseline
    assert system.census()["engine_pages_held"] == 0


def test_a_goal_may_be_a_picture_a_latent_or_the_name_of_one(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    [latent] = values(ask(system, session, "embed", {"frames": PICTURES[1]}), "latents")
    goals: list[Any] = [
        PICTURES[1],
        {"image": PICTURES[1], "id": "cup"},
        {"id": "cup"},
        {"latent": latent[0]},
    ]
    found = [
        values(
            ask(system, session, "plan_image", {"observation": PICTURES[0], "goal": each, "state": STATE}, seed=1),
            "plan",
        )[-1]
        for each in goals
    ]
    for plan in found[1:]:
        np.testing.assert_allclose(plan["actions"], found[0]["actions"], atol=1e-6)
    stranger = system.open("vjepa2")
    asked = {"observation": PICTURES[0], "goal": {"id": "cup"}, "state": STATE}
    assert refusal(ask(system, stranger, "plan_image", asked)).code == "unknown_goal"
    system.close(session)
    assert system.census()["engine_states"] == 0


def test_a_session_keeps_the_goals_it_used_last(system: LocalSystem) -> None:
    session = system.open("vjepa2")

    def use(goal: dict[str, Any]) -> list[Any]:
        asked = {"observation": PICTURES[0], "goal": goal, "state": STATE}
        return ask(system, session, "plan_image", asked, iterations=1, samples=2, topk=2)

    for number in range(GOALS):
        values(use({"image": PICTURES[1], "id": f"goal {number}"}), "plan")
    values(use({"id": "goal 0"}), "plan")
    values(use({"image": PICTURES[2], "id": "one more"}), "plan")
    values(use({"id": "goal 0"}), "plan")
    assert refusal(use({"id": "goal 1"})).code == "unknown_goal"


@pytest.mark.parametrize(
    ("changed", "settings", "named"),
    [
        ({"goal": "cup"}, {}, "goal"),
        ({"goal": {"latent": np.zeros((4, 4))}}, {}, "goal.latent"),
        ({"goal": {"image": np.zeros((4, 4))}}, {}, "goal.image"),
        ({"state": np.zeros(3)}, {}, "state"),
        ({"observation": PICTURES[:2]}, {}, "observation"),
        ({}, {"topk": 1}, "topk"),
        ({}, {"samples": 4}, "topk"),
        ({}, {"samples": "many"}, "samples"),
        ({}, {"samples": 10**7}, "samples"),
        ({}, {"horizon": 33}, "horizon"),
        ({}, {"maxnorm": -1.0}, "maxnorm"),
        ({}, {"objective": "best"}, "objective"),
        ({}, {"momentum_mean": 2}, "momentum_mean"),
        ({}, {"axis": {"7": 0.0}}, "axis"),
        ({}, {"noise": np.zeros((1, 2, 3, 4))}, "noise"),
    ],
)
def test_a_plan_that_can_not_be_is_refused_by_name(
    system: LocalSystem, changed: dict[str, Any], settings: dict[str, Any], named: str
) -> None:
    session = system.open("vjepa2")
    asked = {"observation": PICTURES[0], **goal(1), **changed}
    end = refusal(ask(system, session, "plan_image", asked, **settings))
    assert end.cause.startswith(named)
    assert end.code in {"invalid_value", "no_goal"}
    assert system.census()["requests"] == 0


def test_axis_and_gripper_can_be_held(system: LocalSystem) -> None:
    session = system.open("vjepa2")
    asked = {"observation": PICTURES[0], **goal(1)}
    plans = values(
        ask(system, session, "plan_image", asked, axis={"1": 0.04}, close_gripper=1, momentum_mean_gripper=0), "plan"
    )
    actions = plans[-1]["actions"]
    np.testing.assert_allclose(actions[:, 1], 0.04 * (1 - 0.15**3), atol=1e-6)
    np.testing.assert_allclose(actions[1, 6], 1.0, atol=1e-6)


def test_the_defaults_are_those_of_the_published_wrapper() -> None:
    planner = Planner()
    assert (planner.horizon, planner.samples, planner.iterations, planner.topk) == (2, 400, 10, 10)
    assert (planner.momentum_mean, planner.momentum_std, planner.maxnorm) == (0.15, 0.15, 0.05)
    assert planner.objective == "last"
    assert TINY_WORLD.planner.samples < planner.samples
