"""`python -m examples.robot`: a served world model, a robot that it drives, and a page that shows both.

Exit status 0 after SIGINT or SIGTERM, 1 when the server has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from examples.robot.agent import Agent
from examples.robot.page import Onlookers, application
from examples.robot.session import Imagined, Lost, live_session
from models.worlds.arena import Arena
from models.worlds.recipe import RECIPES

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m examples.robot", description=__doc__)
    parser.add_argument("--world", choices=sorted(RECIPES), default="room")
    parser.add_argument("--weights", help="folder of the world model; without one, that of the package")
    parser.add_argument("--host", default="127.0.0.1", help="where the page is")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--server", help="a running server's http address; without one, one is started")
    parser.add_argument("--seed", type=int, default=0, help="of the goals")
    parser.add_argument("--pause", type=float, default=0.4, help="seconds between a plan and its action")
    options = parser.parse_args(arguments)
    recipe = RECIPES[options.world]
    with serving(options.weights or options.world, options.server) as url:
        try:
            return asyncio.run(show(options, url, recipe.arena(), recipe.steps))
        except Lost:
            print("the server has ended the session", file=sys.stderr)
            return 1


@contextmanager
def serving(world: str, given: str | None) -> Iterator[str]:
    """Address of a server with this world model, ready; it ends with the block if it was started here."""
    if given is not None:
        yield given.rstrip("/")
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "server.cli",
        "serve",
        "vjepa2",
        "--set",
        f"vjepa2.world={world}",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        while not ready(f"http://127.0.0.1:{port}"):
            if process.poll() is not None:
                raise SystemExit(f"the server ended with status {process.returncode}")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def ready(url: str) -> bool:
    """Whether the models are loaded."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5):
            return True
    except (urllib.error.URLError, TimeoutError):
        return False


async def show(options: argparse.Namespace, url: str, arena: Arena, steps: int) -> int:
    """Until a signal comes."""
    onlookers = Onlookers()
    agent = Agent(arena, steps, onlookers, seed=options.seed, pause=options.pause)

    def do(what: str) -> None:
        match what:
            case "start" | "stop":
                agent.go(on=what == "start")
            case "goal":
                agent.leave()

    def imagined(seen: Imagined) -> None:
        onlookers.tell("imagined", chunk=seen.chunk, actions=seen.actions, picture=seen.picture)

    onlookers.tell("world", name=options.world, unit=arena.unit, near=arena.near, steps=steps)
    onlookers.tell("running", on=False)
    runner = web.AppRunner(application(onlookers, do), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, options.host, options.port)
    await site.start()
    try:
        async with live_session(url, imagined=imagined) as session:
            running = asyncio.create_task(agent.run(session))
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, running.cancel)
            print(f"the robot's page: http://{options.host}:{runner.addresses[0][1]}/", flush=True)
            await asyncio.wait({running})
            if not running.cancelled():
                running.result()
    finally:
        await runner.cleanup()
    return 0


if __name__ == "__main__":
    sys.exit(main())
