"""The recorder never holds the session: a slow disk and a full one end the recording, with one line."""

from __future__ import annotations

import errno
import io
import logging
import stat
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from server.record.entries import Closed, Heard, Ticked, read
from server.record.recorder import Recorder, Tape
from tests.unit.record.made import BEGAN, quiet

SOUND = Heard(100.0, 0, quiet(1).tobytes(), 0)


def record(tape: Tape, count: int) -> None:
    tape.keep(BEGAN)
    for _ in range(count):
        tape.keep(SOUND)
    tape.keep(Closed(101.0))


def test_sessions_become_files_that_only_their_owner_reads(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "new", lambda family: {family: "sum"})
    for name in ("one", "other"):
        record(recorder.tape(name, "toy"), 3)
    recorder.close()
    files = sorted((tmp_path / "new").iterdir())
    assert [path.name.partition("-")[2].partition("-")[2] for path in files] == ["one.mrec", "other.mrec"]
    for path in files:
        recording = read(path)
        assert (len(recording.steps), recording.whole, recording.weights) == (3, True, {"toy": "sum"})
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_the_sums_of_a_familys_weights_are_made_once(tmp_path: Path) -> None:
    asked: list[str] = []

    def sums(family: str) -> dict[str, str]:
        asked.append(family)
        return {}

    recorder = Recorder(tmp_path, sums)
    for number in range(4):
        record(recorder.tape(str(number), f"family-{number % 2}"), 1)
    recorder.close()
    assert asked == ["family-0", "family-1"]


class Stuck(io.BytesIO):
    """A disk that does not take anything until it is told to."""

    def __init__(self, free: threading.Event) -> None:
        super().__init__()
        self._free = free

    def write(self, content: object) -> int:
        self._free.wait()
        return super().write(content)  # type: ignore[arg-type]


def test_a_disk_that_is_too_slow_ends_a_recording_and_holds_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    free = threading.Event()
    recorder = Recorder(tmp_path, lambda _: {}, most=10_000, opened=lambda _: Stuck(free))
    tape = recorder.tape("slow", "toy")
    with caplog.at_level(logging.WARNING):
        record(tape, 100)  # 2 KB each
    assert tape.broken
    assert recorder.waiting <= 10_000
    assert [each.getMessage() for each in caplog.records] == [f"recording {tape.path} ends here: the disk is too slow"]
    free.set()
    recorder.close()
    assert recorder.waiting == 0


class Full(io.BytesIO):
    def write(self, content: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_the_recordings_on_it_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def opened(path: Path) -> BinaryIO:
        return Full() if "full" in path.name else path.open("wb")

    recorder = Recorder(tmp_path, lambda _: {}, opened=opened)
    full, good = recorder.tape("full", "toy"), recorder.tape("good", "toy")
    with caplog.at_level(logging.WARNING):
        for tape in (full, good):
            tape.keep(BEGAN)
        for _ in range(5):
            full.keep(SOUND)
            good.keep(Ticked(100.0, 0))
        for tape in (full, good):
            tape.keep(Closed(101.0))
        recorder.close()
    assert full.broken
    assert not good.broken
    assert [each.getMessage() for each in caplog.records] == [
        f"recording {full.path} ends here: [Errno 28] No space left on device"
    ]
    assert len(read(good.path).steps) == 5
    assert recorder.waiting == 0
    assert recorder._files == {}


def test_a_server_that_is_killed_leaves_what_it_had_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, lambda _: {})
    tape = recorder.tape("open", "toy")
    tape.keep(BEGAN)
    tape.keep(SOUND)
    recorder.close()
    recording = read(tape.path)
    assert (len(recording.steps), recording.whole) == (1, False)
