"""Folders of the cache: where a part lies, whether it is whole, and how it is put in place.

A part's folder appears by one rename, so a reader sees a whole part or none. One pull at a time works on a part (an
advisory lock on a file beside it); what a killed pull left behind is swept by the next one that holds the lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from models.pull.manifest import File, Part
from mstar.errors import WeightsError

_BLOCK = 1024 * 1024


def cache_dir() -> Path:
    """Return the folder of all parts: `$MSTAR_CACHE`, or `~/.cache/mstar`."""
    chosen = os.environ.get("MSTAR_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "mstar"


def part_dir(part: str) -> Path:
    """Return the folder of a part by its name, present or not."""
    return cache_dir() / part


def sha256_of(path: Path, count: Callable[[int], None] = lambda _n: None) -> str:
    """Return the SHA-256 of a file in hex; `count` is called with the length of every block read."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            count(len(block))
    return digest.hexdigest()


def missing_file(part: Part, folder: Path) -> File | None:
    """Return the first file that is absent or of another size, or None when all are there."""
    for file in part.files:
        path = folder / file.target
        if not path.is_file() or path.stat().st_size != file.size:
            return file
    return None


def check_sums(part: Part, folder: Path, count: Callable[[int], None] = lambda _n: None) -> None:
    """Hash every file of the part. Raises `WeightsError` naming the first one that differs from the manifest."""
    for file in part.files:
        found = sha256_of(folder / file.target, count)
        if found != file.sha256:
            raise WeightsError(f"{file.target}: wrong SHA-256 {found}, expected {file.sha256}")


@contextmanager
def locked(part: Part, cache: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the part's lock; `waiting` is called once when another pull has it. The lock dies with the process."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{part.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def staging(part: Part, cache: Path) -> Iterator[Path]:
    """Give an empty folder on the cache's disk; it is gone afterwards, whatever happens. Needs the part's lock."""
    prefix = f".{part.name}.staging-"
    for left in cache.glob(f"{prefix}*"):
        shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=cache))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(folder: Path, target: Path) -> None:
    """Rename `folder` to `target`; an older `target` goes into `folder`'s parent, which the caller removes."""
    if target.exists():
        target.rename(folder.parent / "replaced")
    folder.rename(target)
