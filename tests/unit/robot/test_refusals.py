from __future__ import annotations

from typing import cast

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from models.registry import Card
from mstar.client import Client
from server.app import application
from server.door import Server
from server.limits import Admission
from server.robot.offers import announced, described
from server.security import Keys
from server.settings import Settings
from tests.unit.robot.robots import PLANNER, POLICY

PATHS = ("/", "/openpi/policy", "/v1/realtime/robot/openpi", "/v1/robot/session")


class NoRuntime:
    """Nothing may be asked of it: who is refused costs nothing."""


def server(*, ready: bool, seats: int = 1, card: Card | None = None) -> Server:
    cards = {"m": card or Card("m", policy=POLICY)}
    found = Server(Settings(("m",)), cast("Client", NoRuntime()), cards, Keys(()), Admission(seats))
    found.ready = ready
    return found


async def refusal(of: Server, path: str) -> tuple[int, str | None]:
    """Status and Retry-After of an upgrade."""
    async with TestClient(TestServer(application(of))) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(path)
        assert refused.value.headers is not None
        return refused.value.status, refused.value.headers.get("Retry-After")


@pytest.mark.parametrize("path", PATHS)
async def test_nobody_gets_in_before_the_models_are_there_or_without_a_seat(path: str) -> None:
    assert await refusal(server(ready=False), path) == (503, "5")
    assert await refusal(server(ready=True, seats=0), path) == (503, "5")


@pytest.mark.parametrize("path", PATHS)
async def test_who_serves_no_robots_says_so(path: str) -> None:
    assert await refusal(server(ready=True, card=Card("m")), path) == (404, None)


async def test_a_token_of_no_session_is_refused() -> None:
    assert await refusal(server(ready=True), "/v1/robot/session?resume=nothing") == (404, None)


def test_clients_are_told_all_that_they_have_to_send() -> None:
    told = announced("m", POLICY)
    assert told["cameras"] == ["images/left", "images/right"]
    assert told["state"] == {"state": 3}
    assert (told["horizon"], told["action_dim"], told["control_hz"]) == (10, 2, 10.0)
    planner = announced("m", PLANNER)
    assert planner["cameras"] == ["observation/image"]
    assert planner["state"] == {"observation/state": 7}
    assert planner["goal"] == ["goal/image", "goal/latent", "goal_id"]
    live = described("m", PLANNER)
    assert (live["cameras"], live["state"]) == (["camera"], {"state": 7})


@pytest.mark.parametrize("path", ["/whip/robot_1", "/whep/robot_1", "/v1/robot/calls"])
async def test_offers_are_taken_with_a_key_from_a_server_that_is_ready(path: str) -> None:
    of = server(ready=True)
    of.keys = Keys(("sesame",))
    sdp, key = {"Content-Type": "application/sdp"}, {"Authorization": "Bearer sesame"}
    async with TestClient(TestServer(application(of))) as client:
        for method in ("POST", "GET", "HEAD") if path.startswith("/whe") else ("POST",):
            assert (await client.request(method, path, data="v=0", headers=sdp)).status == 401
        for method in ("PATCH", "DELETE"):
            assert (await client.request(method, f"{path}/one", headers=sdp)).status in {401, 405}
            assert (await client.request(method, f"{path}/one", headers={**sdp, **key})).status in {404, 405}
        assert (await client.options(path)).status == 204
        of.ready = False
        late = await client.post(path, data="v=0", headers={**sdp, **key})
        assert (late.status, late.headers["Retry-After"]) == (503, "5")
        of.ready = True
        if path != "/v1/robot/calls":
            assert (await client.post(path, data="v=0", headers={**sdp, **key})).status == 404
