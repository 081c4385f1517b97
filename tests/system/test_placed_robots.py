"""Policies and planners on several processes: pictures encoded apart, K/V on the move, as in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from models.pi05 import model as pi05
from models.registry import family, module_of
from models.vjepa2 import model as vjepa2
from mstar.bus.patience import Patience
from mstar.client import Emission, Request, RequestEnded, Session
from mstar.client.launch import Launched, launch
from mstar.local import LocalSystem
from mstar.placement import Placement, one_rank, placement_of
from tests.system.answers import Answer, answer_of, begins, told
from tests.system.placed import CLOCKED
from tests.system.shapes import apart, shipped
from tests.system.toy import end_of

SETTINGS: Mapping[str, dict[str, Any]] = {"pi05": {"tiny": True, "robot": "libero"}, "vjepa2": {"tiny": 1}}
GRAPHS = {name: family(name).graph(settings) for name, settings in SETTINGS.items()}
DIVIDED = placement_of(
    {
        "ranks": {"eyes": {}, "context": {}, "future": {}},
        "families": {
            "pi05": {
                "default": "future",
                "nodes": {"vit_encoder": "eyes", "LLM": {"prefill": "context", "action_gen": "future"}},
            },
            "vjepa2": {"default": "future", "nodes": {"frame_encoder": "eyes", "imagine_first": "context"}},
        },
        "oversubscribe": True,
    }
)
"""Encoders, what is read or seen first, and what follows from it: each for both families."""

TOLD = {"pi05": 3, "vjepa2": 2}
"""Messages to the conductor: the request, and the end of each of its walks."""
RANDOM = np.random.default_rng(5)
PICTURES = RANDOM.integers(0, 256, (3, 64, 64, 3), np.uint8)
OBSERVATION = {"observation/image": PICTURES[0], "observation/state": np.zeros(8), "prompt": "pick up the cup"}
SCENE = {"observation": PICTURES[0], "goal": {"image": PICTURES[1]}, "state": np.zeros(7, np.float32)}


def shapes() -> list[Any]:
    """Divided; and, each by itself, one worker, what the families ship and every component by itself."""
    slow = {"one worker": one_rank()}
    for module in (pi05, vjepa2):
        name = module.FAMILY.card.name
        slow |= {f"{name} {shape}": placement for shape, placement in shipped(module).items()}
        slow[f"{name} apart"] = apart(GRAPHS[name])
    rest = [pytest.param(placement, id=name, marks=pytest.mark.slow) for name, placement in slow.items()]
    return [pytest.param(DIVIDED, id="divided"), *rest]


def served(placement: Placement) -> list[str]:
    """The families it is for; one rank is for any."""
    return sorted(placement.families) or sorted(SETTINGS)


@pytest_asyncio.fixture(params=shapes())
async def launched(request: pytest.FixtureRequest) -> AsyncIterator[Launched]:
    families = {name: {"module": module_of(name), "settings": SETTINGS[name]} for name in served(request.param)}
    running = launch(families, request.param, patience=Patience(waiting=300.0))
    await running.ready()
    yield running
    await running.stop()
    assert all(process.returncode == 0 for process in running.processes.values())


def asking(session: Session) -> Request:
    """A chunk of actions, or plans."""
    if session.family == "pi05":
        return session.start("act", {"observation": OBSERVATION}, {"seed": 1})
    return planning(session, 4)


def planning(session: Session, iterations: int) -> Request:
    return session.start("plan_image", SCENE, {"seed": 1, "horizon": 3, "iterations": iterations})


def expected(name: str) -> Answer:
    system = LocalSystem({name: GRAPHS[name]}, settings={name: SETTINGS[name]})
    request = asking(system.open(name))
    system.run()
    return answer_of(request.drain(), CLOCKED)


async def answered(session: Session) -> Answer:
    return answer_of([event async for event in asking(session)], CLOCKED)


async def asked_of_all(launched: Launched, what: str) -> dict[str, dict[str, int]]:
    found = {}
    for name in launched.processes:
        value = await launched.client.ask(what, of=name)
        assert isinstance(value, dict)
        found[name] = dict(value)
    return found


@pytest.mark.asyncio
async def test_processes_give_what_one_gives_and_nothing_is_left(
    launched: Launched, request: pytest.FixtureRequest
) -> None:
    placement: Placement = request.node.callspec.params["launched"]
    baseline = await asked_of_all(launched, "census")
    for name in served(placement):
        wanted = expected(name)
        sessions = [await launched.client.open(name) for _ in range(2)]
        for session in sessions:
            assert await answered(session) == wanted
            before = (await asked_of_all(launched, "counters"))["conductor"]["messages"]
            assert await answered(session) == wanted
            after = (await asked_of_all(launched, "counters"))["conductor"]["messages"]
            assert after - before == TOLD[name]  # of dozens of passes, none
        for session in sessions:
            await session.close()
    counted = {name: each for name, each in (await asked_of_all(launched, "counters")).items() if name != "conductor"}
    moved = sum(each["images_given"] for each in counted.values())
    crossed = sum(each["shared_bytes"] for each in counted.values())
    if placement is DIVIDED:
        assert moved >= 2 * 2 * (1 + 7)  # a prefix a chunk; imagined frames there and back in each iteration
        assert crossed > 4 * PICTURES[0].nbytes
    if len(counted) == 1:
        assert (moved, crossed) == (0, 0)
    async with asyncio.timeout(60):  # the workers hear of the closing through the conductor
        while await asked_of_all(launched, "census") != baseline:
            pass


@pytest.mark.slow
@pytest.mark.parametrize("launched", [pytest.param(DIVIDED, id="divided")], indirect=True)
@pytest.mark.asyncio
async def test_a_planner_and_a_policy_live_through_the_loss_of_any_rank(launched: Launched) -> None:
    wanted = {name: expected(name) for name in SETTINGS}
    sessions = [await launched.client.open(name) for name in SETTINGS]
    for worker in sorted(name for name in launched.processes if name.startswith("worker.")):
        long = planning(sessions[1], 100)
        events: list[Emission | RequestEnded] = []
        async for event in long:
            events.append(event)
            if isinstance(event, Emission) and event.value["iteration"] == 2:
                launched.processes[worker].kill()
        end = end_of(events)
        assert (end.status, end.code) == ("failed", "worker_lost")
        assert worker in end.cause
        for session in sessions:
            assert await answered(session) == wanted[session.family]
        planned = told(events, CLOCKED)["plan"]
        assert begins({"plan": planned[:3]}, wanted["vjepa2"])
