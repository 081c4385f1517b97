"""Nodes of the planner: from an observation and a goal to actions, by the cross-entropy method.

`belief`, what goes round in the outer loop: {"mean", "std" [horizon, drawn dimensions], "iteration": iterations done,
"observation": index of the camera frame, −1 = given with the request, "began", "started": clock times}.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from models.blocks.values import integer, items, record
from models.vjepa2.config import WorldConfig
from models.vjepa2.motion import Floats
from models.vjepa2.nodes import checkpoints
from models.vjepa2.nodes.each import Each, array, numbers, tensor
from models.vjepa2.nodes.imagining import most_candidates
from models.vjepa2.pictures import normalised, pictures
from models.vjepa2.planning import (
    Belief,
    Planner,
    draw,
    energies_of,
    first_belief,
    plan_of,
    refit,
    sampled,
)
from mstar.errors import Rejected
from mstar.submodule import STATE, Call, Output
from mstar.tensors import Value

GOALS = 16
"""Named goals that a session keeps; the one unused for longest makes room."""

Clock = Callable[[], float]
"""Seconds."""


def look(settings: Mapping[str, Value], clock: Clock = time.monotonic) -> Each:
    """camera or observation, goal → pixels [1 or 2, 1, 3, size, size]: the observation, and a goal that is a picture.

    `seen`: {"observation": index of the camera's frame or −1, "began": now}.
    """
    size = checkpoints.world(settings).config.clip.size

    def run(call: Call) -> Mapping[str, Output]:
        name = "camera" if "camera" in call.inputs else "observation"
        shown = pictures(name, call.inputs[name])
        if len(shown) != 1:
            raise Rejected(f"{name}: {len(shown)} frames, a plan begins with one", param=name)
        parts = [normalised(shown, size, "square")]
        picture = _goal(call.inputs["goal"]).get("image")
        if picture is not None:
            parts.append(normalised(pictures("goal.image", picture)[:1], size, "square"))
        span = call.spans.get("camera")
        seen = {"observation": -1 if span is None else span.first, "began": clock()}
        return {"pixels": torch.cat(parts)[:, None], "seen": seen}

    return Each(run, ("pixels", "seen"))


def aim(settings: Mapping[str, Value], clock: Clock = time.monotonic) -> Each:
    """tokens [1 or 2, patches, width], seen, goal, state [state] → step, target [patches, width], the first belief.

    The goal is a picture, {"image"}, {"latent"} or {"id"} of one that the session was given before; an id beside the
    others names it. State of the session: name → latent.
    """
    config = checkpoints.world(settings).config

    def run(call: Call) -> Mapping[str, Output]:
        planner = _checked(config, call)
        tokens = tensor(call.inputs["tokens"])
        pose = numbers("state", call.inputs["state"], config.state)
        known = dict(record(call.state)) if call.state is not None else {}
        goal = _goal(call.inputs["goal"])
        target = _target(config, goal, tokens, known)
        name = goal.get("id")
        if isinstance(name, str):
            known.pop(name, None)
            known[name] = target
            known = dict(list(known.items())[-GOALS:])
        space = sampled(config.motion, config.action)
        belief = first_belief(planner, space)
        seen = record(call.inputs["seen"])
        return {
            "step": {"tokens": tokens[None, :1], "poses": pose[None, None]},
            "target": target,
            "belief": {"mean": belief.mean, "std": belief.std, "iteration": 0, "started": clock(), **seen},
            STATE: known or None,
        }

    return Each(run, ("step", "target", "belief", STATE))


def sample(settings: Mapping[str, Value]) -> Each:
    """belief → moves [samples, horizon, action].

    Noise is drawn from (request's seed, iteration), or given: the setting `noise`, [iterations, horizon,
    samples, drawn dimensions].
    """
    config = checkpoints.world(settings).config
    space = sampled(config.motion, config.action)

    def run(call: Call) -> Mapping[str, Output]:
        planner = config.planner.with_settings(call.settings)
        found = record(call.inputs["belief"])
        shape = (planner.horizon, planner.samples, len(space.dims))
        given = call.settings.get("noise")
        iteration = integer(found["iteration"])
        if given is not None:
            noise = numbers("noise", given, -1, *shape)
            if iteration >= len(noise):
                raise Rejected(f"noise: given for {len(noise)} iterations", param="noise")
            drawn = noise[iteration]
        else:
            key = (abs(call.seed), iteration, *((1,) if call.seed < 0 else ()))  # a generator takes none below 0
            drawn = np.random.default_rng(key).standard_normal(shape, np.float32)
        return {"moves": draw(planner, space, _belief(found), drawn)}

    return Each(run, ("moves",))


def score(settings: Mapping[str, Value]) -> Each:
    """step, target → energy [samples]: mean distance of the newest frame's tokens from the goal's; `onward`: the step.

    After the plan's last frame nothing goes onward, and the loop stops.
    """
    config = checkpoints.world(settings).config

    def last(call: Call) -> bool:
        return call.iteration + 1 >= config.planner.with_settings(call.settings).horizon

    def run(call: Call) -> Mapping[str, Output]:
        step, target = record(call.inputs["step"]), tensor(call.inputs["target"])
        tokens = tensor(step["tokens"])[:, 0]
        energy = (tokens - target.to(tokens.device)).abs().mean(dim=(1, 2))
        return {"energy": energy.cpu().numpy(), "onward": None if last(call) else step}

    return Each(run, ("energy", "onward"), stop=lambda call, _: last(call))


def improve(settings: Mapping[str, Value], clock: Clock = time.monotonic) -> Each:
    """belief, moves, energies (one [samples] a frame) → belief, and `plan`: its mean as actions.

    `plan`: {"actions" [horizon, action], "iteration" (from 1), "final", "deadline_hit", "energy": mean of the best
    candidates', "elapsed_ms", "observation"}. With a `deadline_ms`, the last iteration is the one after which another
    one would end too late.
    """
    config = checkpoints.world(settings).config
    space = sampled(config.motion, config.action)

    def run(call: Call) -> Mapping[str, Output]:
        planner = config.planner.with_settings(call.settings)
        found = record(call.inputs["belief"])
        frames = [array(energy) for energy in items(call.inputs["energies"])]
        energies = energies_of(planner.objective, frames)
        belief, energy = refit(planner, space, _belief(found), array(call.inputs["moves"]), energies)
        done = integer(found["iteration"]) + 1
        began, started = (float(found[name]) for name in ("began", "started"))  # type: ignore[arg-type]
        now = clock()
        late = planner.deadline_ms is not None and _next_ends(now, began, started, done) > planner.deadline_ms
        complete = done >= planner.iterations
        plan: dict[str, Value] = {
            "actions": plan_of(space, belief),
            "iteration": done,
            "final": complete or late,
            "deadline_hit": late and not complete,
            "energy": energy,
            "elapsed_ms": (now - began) * 1000,
            "observation": found["observation"],
        }
        return {"belief": {**found, "mean": belief.mean, "std": belief.std, "iteration": done}, "plan": plan}

    return Each(run, ("belief", "plan"), stop=lambda _, outputs: bool(_plan(outputs)["final"]))


def _next_ends(now: float, began: float, started: float, done: int) -> float:
    """Milliseconds after `began` at which one more iteration would end, if it takes as long as those before."""
    return (now - began + (now - started) / done) * 1000


def _plan(outputs: Mapping[str, Output]) -> Mapping[str, Value]:
    plan = outputs["plan"]
    assert isinstance(plan, Mapping)
    return plan


def _belief(found: Mapping[str, Value]) -> Belief:
    return Belief(array(found["mean"]), array(found["std"]))


def _checked(config: WorldConfig, call: Call) -> Planner:
    """The request's parameters. Raises Rejected for what the model or its memory can not do."""
    planner = config.planner.with_settings(call.settings)
    if planner.horizon > config.clip.steps:
        raise Rejected(
            f"horizon is {planner.horizon}, the model imagines within {config.clip.steps} frames", param="horizon"
        )
    most = most_candidates(config, planner.horizon)
    if planner.samples > most:
        raise Rejected(f"samples is {planner.samples}, the K/V memory has room for {most}", param="samples")
    return planner


def _goal(value: Value) -> Mapping[str, Value]:
    """Raises Rejected unless it is a picture, or names one of `image`, `latent`, `id`."""
    if isinstance(value, np.ndarray):
        return {"image": value}
    if not isinstance(value, Mapping) or not {"image", "latent", "id"} & value.keys():
        raise Rejected("goal: expected a picture, or a map with image, latent or id", code="no_goal", param="goal")
    return value


def _target(config: WorldConfig, goal: Mapping[str, Value], tokens: Tensor, known: Mapping[str, Value]) -> Tensor:
    """[patches, width]."""
    if "image" in goal:
        return tokens[1]
    if "latent" in goal:
        shape = (config.clip.patches, config.encoder.width)
        latent: Floats = numbers("goal.latent", goal["latent"], *shape)
        return torch.from_numpy(latent).to(tokens.device)
    name = goal["id"]
    if not isinstance(name, str) or name not in known:
        raise Rejected(f"goal.id: no goal {name!r} is known to this session", code="unknown_goal", param="goal.id")
    return tensor(known[name])
