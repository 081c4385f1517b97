"""Life of the server process: start the runtime, listen, watch, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from models.registry import Card
from mstar.client.launch import Launched, launch
from mstar.placement import Placement
from server.app import application
from server.door import Server
from server.limits import Admission
from server.security import Keys
from server.sessions import drain
from server.settings import Settings

log = logging.getLogger("mstar.server")
CHECK_SECONDS = 1.0


def run(
    settings: Settings, cards: Mapping[str, Card], families: Mapping[str, Mapping[str, Any]], placement: Placement
) -> int:
    """Serve until SIGTERM or SIGINT → exit status. Raises WorkerLost if a process of the runtime ends."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(_serve(settings, cards, families, placement))
    return 0


async def _serve(
    settings: Settings, cards: Mapping[str, Card], families: Mapping[str, Mapping[str, Any]], placement: Placement
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    launched = launch(families, placement)
    try:
        server = Server(
            settings, launched.client, dict(cards), Keys(settings.api_keys), Admission(settings.max_sessions)
        )
        runner = web.AppRunner(application(server), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, settings.host, settings.port, ssl_context=_tls(settings)).start()
            scheme = "https" if settings.certificate is not None else "http"
            log.info("listening on %s://%s:%d/, loading %s", scheme, settings.host, settings.port, ", ".join(cards))
            await _until(stop, server, launched)
            log.info("draining: %d sessions", server.admission.held)
            await drain(server)
        finally:
            await runner.cleanup()
    finally:
        await launched.stop()


async def _until(stop: asyncio.Event, server: Server, launched: Launched) -> None:
    """Wait for the end, looking after the processes meanwhile."""
    loading = asyncio.ensure_future(launched.ready())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            loading.result()
            server.ready = True
            log.info("ready")
        while not stopping.done():
            await asyncio.wait({stopping}, timeout=CHECK_SECONDS)
            launched.check()
    finally:
        loading.cancel()
        stopping.cancel()


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.certificate, settings.private_key)
    return context
