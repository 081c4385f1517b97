"""Bodies that stop in the middle, or do not end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from server.http import reading
from server.security import Refusal

T = TypeVar("T")
PLAIN, FORM = "text/plain", "multipart/form-data; boundary=x"


async def taken(read: Callable[[web.Request], Awaitable[T]], kind: str, *pieces: bytes) -> T:
    """What is made of a body whose length nobody tells before. Raises Refusal."""
    made: list[T | Refusal] = []

    async def take(request: web.Request) -> web.Response:
        try:
            made.append(await read(request))
        except Refusal as why:
            made.append(why)
        return web.Response()

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    app = web.Application()
    app.router.add_post("/", take)
    async with TestClient(TestServer(app)) as client:
        await client.post("/", data=body(), headers={"Content-Type": kind})
    [found] = made
    if isinstance(found, Refusal):
        raise found
    return found


def field(name: str, length: int) -> bytes:
    return f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{"a" * length}\r\n'.encode()


END = b"--x--\r\n"


@pytest.mark.parametrize(("limit", "told"), [(300 * 1024, "300 KiB"), (1024 * 1024, "1 MiB")])
async def test_a_body_is_read_to_its_limit_whatever_length_it_tells(limit: int, told: str) -> None:
    def read(request: web.Request) -> Awaitable[bytes]:
        return reading.body_of(request, limit)

    assert len(await taken(read, PLAIN, b"a" * (limit - 1), b"a")) == limit
    with pytest.raises(Refusal, match=told) as why:
        await taken(read, PLAIN, b"a" * limit, b"a")
    assert (why.value.status, why.value.code) == (413, "body_too_large")


async def test_a_field_that_may_be_longer_may_be_alone_and_not_again_and_again() -> None:
    much = 8 * reading.FIELD_BYTES * reading.FIELDS

    def read(request: web.Request) -> Awaitable[reading.Form]:
        return reading.form_of(request, {"long": much})

    form = await taken(read, FORM, field("long", much), field("short", reading.FIELD_BYTES), END)
    assert [(name, len(value)) for name, value in form.fields] == [("long", much), ("short", reading.FIELD_BYTES)]
    for pieces, param in (
        ([field("long", much + 1)], "long"),
        ([field("short", reading.FIELD_BYTES + 1)], "short"),
        ([field("long", much)] * 2, None),
    ):
        with pytest.raises(Refusal) as why:
            await taken(read, FORM, *pieces, END)
        assert (why.value.status, why.value.code, why.value.param) == (413, "body_too_large", param)


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
