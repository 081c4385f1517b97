"""A process in a WebRTC call, to be frozen or killed: says so on stdout and goes on."""

from __future__ import annotations

import asyncio
import sys

from tests.clients.conftest import Serving
from tests.clients.rtc import calling


async def main(url: str) -> None:
    async with calling(Serving(url, 0)) as client:
        await client.frames(10)
        print("connected", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
