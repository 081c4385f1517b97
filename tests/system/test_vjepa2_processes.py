"""The planner in real processes over ZeroMQ, with checkpoints in the public layouts given as on the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from models.vjepa2.model import FAMILY
from mstar.client import Emission, Request, RequestEnded
from mstar.client.launch import Launched, launch
from mstar.local import LocalSystem
from mstar.placement import one_rank

DATA = Path(__file__).parent.parent / "data"
SETTINGS = {"world": str(DATA / "vjepa2_ac" / "vjepa2-ac.pt"), "video": str(DATA / "vjepa2")}
PICTURES = np.random.default_rng(11).integers(0, 256, (4, 64, 80, 3), np.uint8)
ASKED = {"goal": {"image": PICTURES[3]}, "state": np.zeros(7, np.float32)}
PLANNER = {"samples": 12, "topk": 4, "iterations": 3}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def launched() -> AsyncIterator[Launched]:
    running = launch({"vjepa2": {"module": "models.vjepa2.model", "settings": SETTINGS}}, one_rank())
    await running.ready()
    yield running
    await running.stop()
    assert all(process.returncode == 0 for process in running.processes.values())


async def values(request: Request, output: str) -> list[Any]:
    events = [event async for event in request]
    assert isinstance(events[-1], RequestEnded)
    assert events[-1].status == "done", events[-1]
    return [event.value for event in events if isinstance(event, Emission) and event.output == output]


async def census(launched: Launched) -> dict[str, Any]:
    return {name: await launched.client.ask("census", of=name) for name in launched.processes}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_camera_is_planned_from_as_in_one_process(launched: Launched) -> None:
    session = await launched.client.open("vjepa2")
    noise = np.random.default_rng(1).standard_normal((3, 2, 12, 4), np.float32)
    request = session.start("plan", ASKED, {**PLANNER, "noise": noise}, positions={"camera": 0})
    session.feed("camera", 0, PICTURES[0])
    plans = await values(request, "plan")
    assert [plan["iteration"] for plan in plans] == [1, 2, 3]
    await session.close()
    system = LocalSystem({"vjepa2": FAMILY.graph(SETTINGS)}, settings={"vjepa2": SETTINGS})
    local = system.open("vjepa2").start(
        "plan_image", {"observation": PICTURES[0], **ASKED}, {**PLANNER, "noise": noise}
    )
    system.run()
    wanted = [event.value for event in local.drain() if isinstance(event, Emission)]
    for one, other in zip(plans, wanted, strict=True):
        assert isinstance(other, dict)
        np.testing.assert_allclose(one["actions"], other["actions"], atol=1e-6)


@pytest.mark.asyncio(loop_scope="module")
async def test_imagined_and_encoded_frames_come_as_arrays(launched: Launched) -> None:
    session = await launched.client.open("vjepa2")
    asked = {"frames": PICTURES[:1], "actions": np.zeros((4, 7)), "states": np.zeros((1, 7))}
    [imagined] = await values(session.start("rollout", asked, {"horizon": 3}), "imagined")
    streamed = await values(session.start("rollout_streaming", asked), "imagined")
    assert [frame["tokens"].shape for frame in imagined] == [(16, 48)] * 3
    for one, other in zip(imagined, streamed, strict=False):
        np.testing.assert_array_equal(one["tokens"], other["tokens"])
    [latents] = await values(session.start("encode", {"frames": PICTURES}), "latents")
    assert latents.shape == (1, 32, 60)
    await session.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_client_that_leaves_in_the_middle_of_plans_leaves_nothing(launched: Launched) -> None:
    baseline = await census(launched)
    session = await launched.client.open("vjepa2")
    requests = [session.start("plan", ASKED, {**PLANNER, "iterations": 100}, positions={"camera": 0}) for _ in range(3)]
    session.feed("camera", 0, PICTURES[0])
    async for event in requests[0]:
        assert isinstance(event, Emission)
        break
    await session.close()
    assert await census(launched) == baseline
