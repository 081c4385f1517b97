"""Life of the server process: start the runtime, listen, watch, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from models.registry import Card
from mstar.client.launch import launch
from mstar.placement import Placement
from server.app import application
from server.door import Server
from server.limits import Accounts, Admission
from server.listening import bound
from server.record.recorder import Recorder
from server.record.weights import weights_of
from server.runtime import Runtime
from server.security import Keys
from server.sessions import drain
from server.settings import Settings

log = logging.getLogger("mstar.server")


def run(
    settings: Settings, cards: Mapping[str, Card], families: Mapping[str, Mapping[str, Any]], placement: Placement
) -> int:
    """Serve until SIGTERM or SIGINT → exit status.

    Raises WorkerLost if a process of the runtime can not be begun, or replaced; OSError, before any is started, for an
    address that is taken or a folder of recordings that can not be written to.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    sockets = bound(settings.host, settings.port)
    try:
        tls = _tls(settings)
        recorder = _recorder(settings, families)
        try:
            asyncio.run(_serve(settings, cards, families, placement, sockets, tls, recorder))
        finally:
            if recorder is not None:
                recorder.close()
    finally:
        for each in sockets:
            each.close()
    return 0


async def _serve(
    settings: Settings,
    cards: Mapping[str, Card],
    families: Mapping[str, Mapping[str, Any]],
    placement: Placement,
    sockets: Sequence[socket.socket],
    tls: ssl.SSLContext | None,
    recorder: Recorder | None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runtime = Runtime(lambda: launch(families, placement, patience=settings.patience, spare=settings.spare))
    try:
        server = Server(
            settings,
            runtime.client,
            dict(cards),
            Keys(settings.api_keys),
            Admission(settings.max_sessions),
            Accounts(settings.allowance, time.monotonic),
            recorder=recorder,
            family_settings={name: given["settings"] for name, given in families.items()},
        )
        runner = web.AppRunner(application(server), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            for each in sockets:
                await web.SockSite(runner, each, ssl_context=tls).start()
            scheme, port = "https" if tls is not None else "http", sockets[0].getsockname()[1]
            log.info("listening on %s://%s:%d/, loading %s", scheme, settings.host, port, ", ".join(cards))
            await runtime.serve(server, stop)
            log.info("draining: %d sessions", server.admission.held)
            await drain(server)
        finally:
            await runner.cleanup()
    finally:
        await runtime.launched.stop()


def _recorder(settings: Settings, families: Mapping[str, Mapping[str, Any]]) -> Recorder | None:
    if settings.record is None:
        return None
    log.info("recording sessions in %s", settings.record)
    return Recorder(settings.record, lambda family: weights_of(family, families[family]["settings"]))


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.private_key)
    except OSError as why:
        files = f"{settings.certificate} and {settings.private_key}"
        raise OSError(f"{files} are no certificate with its key in PEM: {why.strerror or why}") from None
    return context
