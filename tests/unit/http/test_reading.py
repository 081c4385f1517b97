"""Bodies that stop in the middle."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from server.http import reading
from server.security import Refusal


@pytest.mark.parametrize(
    ("kind", "begun"),
    [
        ("application/json", b"{"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nab'),
    ],
)
async def test_who_stops_in_the_middle_is_told(monkeypatch: pytest.MonkeyPatch, kind: str, begun: bytes) -> None:
    monkeypatch.setattr(reading, "IDLE_SECONDS", 0.05)
    refused: asyncio.Future[Refusal] = asyncio.get_running_loop().create_future()

    async def take(request: web.Request) -> web.Response:
        try:
            await (reading.body_of(request) if "json" in kind else reading.form_of(request))
        except Refusal as why:
            refused.set_result(why)
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    async with TestClient(TestServer(app)) as client:
        _, writer = await asyncio.open_connection(client.host, client.port)
        head = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: 100\r\n\r\n"
        writer.write(head.encode() + begun)
        assert (await asyncio.wait_for(refused, 60)).status == 408
        writer.close()
        await writer.wait_closed()
