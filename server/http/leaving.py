"""Work for a client that may hang up: it ends with the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from aiohttp import web

T = TypeVar("T")

LOOK_SECONDS = 0.2
"""A client that has hung up is noticed within this time: the library tells a handler only when it writes."""


class HungUp(ConnectionError):
    """The client has closed its connection."""


async def while_connected(request: web.Request, work: Awaitable[T]) -> T:
    """The work's result. Where the client hangs up before, the work is cancelled, and HungUp is raised."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise HungUp
    finally:
        watching.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})


async def _hung_up(request: web.Request) -> None:
    while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(LOOK_SECONDS)
