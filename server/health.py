"""How the server is: alive, ready, and in numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from mstar.tensors import Value
from server.door import SERVER
from server.metrics import CONTENT_TYPE

LAG_SECONDS = 0.5
ASK_SECONDS = 2.0
"""The runtime answers within this time, or is taken for stuck."""
CONDUCTOR = "conductor"


async def healthz(_: web.Request) -> web.Response:
    """The process answers."""
    return web.Response(text="OK")


async def readyz(request: web.Request) -> web.Response:
    """200 only if every worker is ready and, where it has work, moves."""
    server = request.app[SERVER]
    if server.admission.draining:
        return web.Response(status=503, text="draining")
    if not server.ready:
        return web.Response(status=503, text="loading")
    try:
        async with asyncio.timeout(ASK_SECONDS):
            workers = await server.client.ask("workers")
    except TimeoutError:
        return web.Response(status=503, text="the conductor does not answer")
    stuck = _stuck(workers, server.settings.progress_seconds)
    if stuck:
        return web.Response(status=503, text="\n".join(stuck))
    return web.Response(text="OK")


def _stuck(workers: Value, limit: float) -> list[str]:
    """One line for each worker that is not ready or makes no progress."""
    if not isinstance(workers, (list, tuple)) or not workers:
        return ["no workers"]
    lines = []
    for worker in workers:
        if not worker["ready"]:
            lines.append(f"{worker['worker']}: loading")
        elif worker["seen"] > limit:
            lines.append(f"{worker['worker']}: no progress for {worker['seen']:.0f} s")
    return lines


async def metrics(request: web.Request) -> web.Response:
    """Numbers of the server, and the counters of the runtime's processes."""
    server = request.app[SERVER]
    server.metrics.tasks.set(len(asyncio.all_tasks()))
    try:
        async with asyncio.timeout(ASK_SECONDS):
            workers = await server.client.ask("workers")
            ready = [str(each["worker"]) for each in workers if each["ready"]] if isinstance(workers, list) else []
            server.metrics.workers.listed(workers)
            for name in (CONDUCTOR, *ready):
                for what, gauge in (("counters", server.metrics.runtime), ("census", server.metrics.held)):
                    told = await server.client.ask(what, of=name)
                    server.metrics.told(gauge, name, told)
                    server.metrics.workers.told(name, what, told)
                if name != CONDUCTOR:
                    server.metrics.workers.told(name, "measures", await server.client.ask("measures", of=name))
    except TimeoutError:
        server.metrics.silent.inc()
    return web.Response(body=server.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


async def watch_lag(app: web.Application) -> AsyncIterator[None]:
    """Measure how late the event loop is, as long as the server runs."""
    observed = app[SERVER].metrics.loop_lag

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_SECONDS
            await asyncio.sleep(LAG_SECONDS)
            observed.observe(max(0.0, loop.time() - due))

    task = asyncio.create_task(watch())
    yield
    task.cancel()
