"""π0.5 as the server starts it: real processes over ZeroMQ, settings as the command line gives them."""

from __future__ import annotations

import numpy as np

from models.registry import family, module_of
from mstar.client import Emission, RequestEnded
from mstar.client.launch import launch
from mstar.placement import one_rank


async def test_a_robot_is_answered_over_the_bus_and_its_mistake_is_named() -> None:
    assert family("pi05").card.conversation is None
    settings = {"tiny": "true", "robot": "aloha"}
    running = launch({"pi05": {"module": module_of("pi05"), "settings": settings}}, one_rank())
    try:
        await running.ready()
        session = await running.client.open("pi05")
        picture = np.random.default_rng(0).integers(0, 256, (3, 48, 64), dtype=np.uint8)
        sent = {
            "images": {"cam_high": picture, "cam_left_wrist": picture},
            "state": np.zeros(14),
            "prompt": "fold the towel",
        }
        request = session.start("act", {"observation": sent}, {"seed": 1})
        first, end = [event async for event in request]
        assert isinstance(first, Emission)
        assert isinstance(end, RequestEnded)
        assert end.status == "done"
        assert first.value["masked"] == ["right_wrist_0_rgb"]
        chunk = first.value["actions"]
        assert chunk.shape == (10, 14)
        follows = {**sent, "prev_chunk": chunk[4:], "delay_steps": 2}
        again, _ = [event async for event in session.start("act", {"observation": follows}, {"seed": 1})]
        assert isinstance(again, Emission)
        assert np.array_equal(again.value["actions"][:2], chunk[4:6])
        bad = session.start("act", {"observation": {**sent, "state": np.zeros(7)}})
        [refused] = [event async for event in bad]
        assert isinstance(refused, RequestEnded)
        assert (refused.status, refused.code) == ("failed", "wrong_shape")
        assert "state has 7 values, the robot has 14" in refused.cause
    finally:
        await running.stop()
