"""What an idle session holds: resident memory and K/V pages, connected and after a turn."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from models.pull import part_dir
from models.voice.model import FAMILY
from mstar.client import Session
from mstar.local import LocalSystem
from tests.bench.questions import STORIES
from tests.bench.report import Metric, Row, Sample

KB = 1024


def run(*, quick: bool) -> Row:
    """Fifty sessions, eight if quick; the runtime in one process, so that nothing else grows."""
    count = 8 if quick else 50
    parts = {"llm": "smollm2", "asr": "whisper-tiny-en", "voice": "piper-joe", "ear": "ear"}
    settings = {name: str(part_dir(part)) for name, part in parts.items()}
    system = LocalSystem({"voice": FAMILY.graph({})}, settings={"voice": settings})
    [worker] = system.workers
    warm = system.open("voice")
    _turn(system, warm)
    system.close(warm)
    system.run()
    samples: list[Sample] = []
    before, pages = _resident(), _held(system, worker)
    sessions = [system.open("voice") for _ in range(count)]
    system.run()
    connected = (_resident() - before) / count
    for number, session in enumerate(sessions):
        _turn(system, session, number)
    after, held = _resident(), _held(system, worker)
    samples.append({"sessions": count, "rss": after, "rss_before": before, "pages": held - pages})
    for session in sessions:
        system.close(session)
    system.run()
    left = _held(system, worker) - pages
    return Row(
        "memory",
        (
            Metric("connected", "KB", (connected / KB,)),
            Metric("after_turn", "KB", ((after - before) / count / KB,)),
            Metric("pages", "K/V pages", ((held - pages) / count,)),
            Metric("left", "K/V pages", (float(left),)),
        ),
        tuple(samples),
        notes=("a page of SmolLM2's is 720 KB: 16 positions; `left`: held when all sessions are closed",),
    )


def _turn(system: LocalSystem, session: Session, number: int = 0) -> None:
    history = [{"role": "user", "content": STORIES[number % len(STORIES)]}]
    request = session.start("answer_text", {"history": history, "tools": []}, {"max_tokens": 4})
    system.run()
    request.drain()


def _resident() -> int:
    """Bytes of this process that are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _held(system: LocalSystem, worker: str) -> int:
    return int(system.ask("census", of=worker)["engine_pages_held"])
