"""The runtime below a server: watched, and started anew when its conductor is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mstar.client import Client, WorkerUp
from mstar.client.launch import Launched
from mstar.client.processes import News
from mstar.errors import ConductorLost, Rejected, WorkerLost
from server.door import Server
from server.robot.warming import warm
from server.sessions import GOODBYE_SECONDS

log = logging.getLogger("mstar.server")

MOST_LOSSES = 3
"""Conductors that may be lost in a row, none of which has served for `CALM_SECONDS`."""
CALM_SECONDS = 60.0
STOP_SECONDS = 3.0
"""Time that processes without a conductor have to end."""
SAY_SECONDS = 0.1
"""Time in which answers that were under way end, before their connections do."""


class Runtime:
    """`start` begins new processes; `launched` are the present ones."""

    def __init__(self, start: Callable[[], Launched]) -> None:
        self.launched = start()
        self._start = start

    @property
    def client(self) -> Client:
        return self.launched.client

    async def serve(self, server: Server, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises WorkerLost when no process can be begun, or none lasts."""
        losses = 0
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            began = loop.time()
            try:
                await self._until_stop(server, stop)
            except ConductorLost as why:
                losses = 1 if loop.time() - began > CALM_SECONDS else losses + 1
                first = not server.ready and losses == 1
                await self._tell(server, why)
                if first or losses > MOST_LOSSES:
                    raise
                log.warning("%s: everything is started anew", why)
                await self._anew(server)
            except WorkerLost as why:
                await self._tell(server, why)
                raise

    async def _until_stop(self, server: Server, stop: asyncio.Event) -> None:
        stopping = asyncio.ensure_future(stop.wait())
        living = asyncio.ensure_future(self._live(server))
        try:
            await asyncio.wait({stopping, living}, return_when=asyncio.FIRST_COMPLETED)
            if living.done():
                living.result()
        finally:
            stopping.cancel()
            living.cancel()

    async def _live(self, server: Server) -> None:
        self.launched.on_news(_noted)
        await self.launched.ready()
        watching, warming = asyncio.ensure_future(self.launched.watch()), asyncio.ensure_future(warm(server))
        try:
            await asyncio.wait({watching, warming}, return_when=asyncio.FIRST_COMPLETED)
            if not watching.done():
                warming.result()
                server.ready = True
                log.info("ready")
            await watching
        finally:
            watching.cancel()
            warming.cancel()

    async def _anew(self, server: Server) -> None:
        """Nobody is connected any more, or is about to leave."""
        await server.admission.empty(GOODBYE_SECONDS)
        await self.launched.stop(STOP_SECONDS)
        self.launched = self._start()
        server.use(self.launched.client)

    async def _tell(self, server: Server, why: WorkerLost) -> None:
        """Every client hears why its connection ends."""
        server.ready = False
        await asyncio.sleep(SAY_SECONDS)
        lost = Rejected(f"The runtime was lost: {why}.", code="runtime_lost")
        for connection in list(server.live):
            connection.refuse(lost)
            connection.end(1012, "the runtime was lost")
        for let_go in server.on_lost:
            await let_go()


def _noted(news: News) -> None:
    if isinstance(news, WorkerUp):
        log.warning("%s is ready again after %.1f s", news.worker, news.seconds)
    else:
        log.warning("%s: it is started anew", news.cause)
