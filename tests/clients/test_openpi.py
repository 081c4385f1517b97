"""Robots over openpi's protocol: the stock client, and what a rough one does."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from server.robot.arrays import pack, unpack
from tests.absent import absent
from tests.clients.conftest import Serving, serving
from tests.clients.test_leaving import quiet

SCRIPT = Path(__file__).parent / "openpi_robot.py"
KEY = "key-of-the-robot"
SEEN = {"images": {"base_0_rgb": {"picture": 1}}, "state": {"zeros": 8}, "prompt": "pick up the cup"}
PLANNED = {"observation/image": {"picture": 2}, "observation/state": {"zeros": 7}, "goal/image": {"picture": 3}}
FEW = {"samples": 12, "topk": 4, "iterations": 2}
HEADERS = {"Authorization": f"Api-Key {KEY}"}


@pytest.fixture(scope="module")
def robots() -> Iterator[Serving]:
    tiny = ("--set", "pi05.tiny=true", "--set", "vjepa2.tiny=true")
    yield from serving("pi05", "vjepa2", *tiny, "--api-key", KEY)


@pytest.fixture(scope="module")
def stock_python() -> Path:
    """Python of the environment with openpi-client."""
    path = Path(sys.executable).parent.parent / "openpi" / "bin" / "python"
    if not path.exists():
        absent("openpi-client is not installed: make openpi")
    return path


async def stock(python: Path, server: Serving, steps: list[Any], path: str = "/", key: str = KEY) -> list[Any]:
    """What the stock client saw: the server's metadata, and one result a step."""
    given = json.dumps({"uri": server.url.replace("http", "ws") + path, "key": key, "steps": steps})
    process = await asyncio.create_subprocess_exec(str(python), str(SCRIPT), given, stdout=subprocess.PIPE)
    told, _ = await process.communicate()
    assert process.returncode == 0
    return list(json.loads(told))


@asynccontextmanager
async def connected(server: Serving, path: str = "/") -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(server.url + path, headers=HEADERS, max_msg_size=0) as socket,
    ):
        assert (await socket.receive()).type is aiohttp.WSMsgType.BINARY
        yield socket


def real(spec: Mapping[str, Any]) -> dict[str, Any]:
    """An observation in arrays."""
    if "picture" in spec:
        return np.random.default_rng(spec["picture"]).integers(0, 256, (48, 64, 3), dtype=np.uint8)  # type: ignore[return-value]
    if "zeros" in spec:
        return np.zeros(spec["zeros"], np.float32)  # type: ignore[return-value]
    return {name: real(each) if isinstance(each, Mapping) else each for name, each in spec.items()}


async def asked(socket: aiohttp.ClientWebSocketResponse, observation: Mapping[str, Any]) -> Any:
    await socket.send_bytes(pack(observation))
    message = await socket.receive()
    return unpack(message.data) if message.type is aiohttp.WSMsgType.BINARY else message.data


@pytest.mark.parametrize("path", ["/", "/openpi/policy", "/v1/realtime/robot/openpi"])
async def test_the_stock_client_gets_chunks_of_actions(stock_python: Path, robots: Serving, path: str) -> None:
    told, first, again = await stock(stock_python, robots, [["infer", SEEN], ["infer", SEEN]], path)
    assert (told["model"], told["horizon"], told["action_dim"], told["kind"]) == ("pi05", 10, 32, "policy")
    assert told["cameras"] == ["images/base_0_rgb", "images/left_wrist_0_rgb", "images/right_wrist_0_rgb"]
    assert (told["needs_wrist_camera"], told["n_external_cameras"]) == (True, 1)
    assert (first["actions"]["shape"], first["actions"]["dtype"]) == ([10, 32], "<f4")
    assert np.ptp(first["actions"]["values"]) > 0
    assert first["masked"] == ["left_wrist_0_rgb", "right_wrist_0_rgb"]
    assert 0 < first["policy_timing"]["infer_ms"] <= first["server_timing"]["infer_ms"]
    assert "prev_total_ms" not in first["server_timing"]
    assert again["server_timing"]["prev_total_ms"] > 0


async def test_its_chunk_broker_plays_a_chunk_and_asks_for_the_next(stock_python: Path, robots: Serving) -> None:
    seed = {"settings": {"seed": 3}}
    _, chunk, *steps = await stock(stock_python, robots, [["infer", {**SEEN, **seed}], ["broker", {**SEEN, **seed}]])
    rows = np.reshape(chunk["actions"]["values"], chunk["actions"]["shape"])
    played = np.array([step["actions"]["values"] for step in steps])
    np.testing.assert_allclose(played, rows[[0, 1, 2, 3, 0, 1]], atol=1e-5)


async def test_the_stock_client_plans_towards_a_picture(stock_python: Path, robots: Serving) -> None:
    named = {**PLANNED, "goal_id": "shelf", "settings": {**FEW, "seed": 1}}
    later = {name: each for name, each in named.items() if name != "goal/image"}
    told, first, again = await stock(stock_python, robots, [["infer", named], ["infer", later]], "/?model=vjepa2")
    assert (told["kind"], told["action_dim"], told["control_hz"]) == ("planner", 7, 4.0)
    assert first["actions"]["shape"] == [2, 7]
    assert (first["plan"]["iteration"], first["plan"]["final"], first["plan"]["deadline_hit"]) == (2, True, False)
    assert first["plan"]["energy"] > 0
    np.testing.assert_allclose(again["actions"]["values"], first["actions"]["values"], atol=1e-6)


async def test_mistakes_are_named_and_the_connection_stays(stock_python: Path, robots: Serving) -> None:
    no_prompt = {name: each for name, each in SEEN.items() if name != "prompt"}
    wrong = {**SEEN, "state": {"zeros": 40}}
    more = {**SEEN, "jiont": 1}
    _, a, b, c, good = await stock(stock_python, robots, [["infer", x] for x in (no_prompt, wrong, more, SEEN)])
    assert "missing_key: prompt" in a["error"]
    assert "state has 40 values, the policy takes 32" in b["error"]
    assert "unknown key jiont; known: " in c["error"]
    assert good["actions"]["shape"] == [10, 32]


async def test_mistakes_of_a_planners_client_are_named(stock_python: Path, robots: Serving) -> None:
    without = [{name: each for name, each in PLANNED.items() if name != key} for key in PLANNED]
    flat = {**PLANNED, "observation/image": {"zeros": 5}}
    unknown = {**PLANNED, "prompt": "up"}
    few = {**PLANNED, "settings": {"samples": -1}}
    odd = {**PLANNED, "settings": {"sample": 9}}
    lost = {**without[2], "goal_id": "nowhere"}
    steps = [["infer", each] for each in (*without, flat, unknown, few, odd, lost)]
    _, *errors = await stock(stock_python, robots, steps, "/?model=vjepa2")
    wanted = [
        "missing_key: key observation/image is missing",
        "missing_key: key observation/state is missing",
        "no_goal: the observation has no goal",
        "observation/image must be a uint8 array, not float64",
        "unknown_key: unknown key prompt",
        "samples is -1",
        "unknown_key: unknown setting 'sample'; known: seed, horizon, samples",
        "unknown_goal: goal.id: no goal 'nowhere'",
    ]
    for seen, text in zip(errors, wanted, strict=True):
        assert text in seen["error"]


async def test_a_long_plan_blocks_nobody_and_a_killed_client_leaves_nothing(robots: Serving) -> None:
    async with connected(robots) as socket:
        await asked(socket, real(SEEN))
    before = await quiet(robots)
    async with connected(robots, "/?model=vjepa2") as planning, connected(robots) as acting:
        long = {**real(PLANNED), "settings": {"iterations": 100, "samples": 400, "horizon": 8}}
        await planning.send_bytes(pack(long))
        answer = asyncio.ensure_future(planning.receive())
        assert (await asked(acting, real(SEEN)))["actions"].shape == (10, 32)
        await planning.ping()
        status, _ = await asyncio.to_thread(robots.get, "/healthz")
        assert status == 200
        assert (await asked(acting, real(SEEN)))["actions"].shape == (10, 32)
        assert not answer.done()
        answer.cancel()
        planning._writer.transport.abort()
    assert await quiet(robots, before) == pytest.approx(before)


async def test_frames_that_are_no_observations_are_answered_with_text(robots: Serving) -> None:
    async with connected(robots) as socket:
        await socket.send_str("{}")
        assert "binary frames" in (await socket.receive()).data
        await socket.send_bytes(b"\xc1nonsense")
        assert "no msgpack" in (await socket.receive()).data
        assert "an observation is a map" in await asked(socket, [1])  # type: ignore[arg-type]
        cut = {b"__ndarray__": True, b"data": b"123", b"dtype": "<f4", b"shape": [1]}
        assert "state: 3 bytes are no float32 of shape (1,)" in await asked(socket, {"state": cut})
        code = {b"__ndarray__": True, b"data": b"", b"dtype": "O", b"shape": [0]}
        assert "dtype 'O' is not read here" in await asked(socket, {"state": code})
        for key in ("endpoint", "session_id", "reset"):
            for value in (np.zeros(2), ["a"], {"a": 1}, b"a"):
                assert f"wrong_dtype: {key} is a text or a number" in await asked(socket, {**real(SEEN), key: value})
        assert "settings.step" not in await asked(socket, {**real(SEEN), "settings": {"flow_steps": 3}})
        assert "unknown setting 'step'; known: seed, flow_steps" in await asked(
            socket, {**real(SEEN), "settings": {"step": 3}}
        )
        assert (await asked(socket, real(SEEN)))["actions"].shape == (10, 32)


async def test_an_episode_begins_with_nothing_of_the_one_before(robots: Serving) -> None:
    named = {**real(PLANNED), "goal_id": "shelf", "settings": FEW}
    later = {name: each for name, each in named.items() if name != "goal/image"}
    async with connected(robots, "/?model=vjepa2") as socket:
        await asked(socket, named)
        assert (await asked(socket, later))["actions"].shape == (2, 7)
        assert await asked(socket, {"reset": True}) == {"status": "reset"}
        assert "unknown_goal" in await asked(socket, later)
        await asked(socket, named)
        assert await asked(socket, {"endpoint": "reset", "session_id": "a"}) == "reset successful"
        assert "unknown_goal" in await asked(socket, later)
        await asked(socket, {"endpoint": "infer", "session_id": "a", **named})
        assert (await asked(socket, {"endpoint": "infer", "session_id": "a", **later}))["actions"].shape == (2, 7)
        assert "unknown_goal" in await asked(socket, {"endpoint": "infer", "session_id": "b", **later})
        assert "known: infer, reset" in await asked(socket, {"endpoint": "kill"})


async def test_who_does_not_wait_for_answers_is_told_so(robots: Serving) -> None:
    async with connected(robots, "/?model=vjepa2") as socket:
        for _ in range(8):
            await socket.send_bytes(pack({**real(PLANNED), "settings": {"iterations": 100, "samples": 100}}))
        message = await socket.receive()
        assert (message.type, socket.close_code) == (aiohttp.WSMsgType.CLOSE, 1008)


async def test_the_page_and_the_robot_share_an_address(robots: Serving) -> None:
    status, page = robots.get("/")
    assert (status, page[:15].lower()) == (200, "<!doctype html>")
    assert robots.get("/openpi/policy")[0] == 401
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        async with session.get(robots.url + "/openpi/policy") as answer:
            assert answer.status == 426
        with pytest.raises(aiohttp.WSServerHandshakeError) as unknown:
            await session.ws_connect(robots.url + "/?model=voice")
        assert unknown.value.status == 404
        with pytest.raises(aiohttp.WSServerHandshakeError) as foreign:
            await session.ws_connect(robots.url + "/", headers={"Origin": "https://evil.example"})
        assert foreign.value.status == 403
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as keyless:
            await session.ws_connect(robots.url + "/")
        assert keyless.value.status == 401
