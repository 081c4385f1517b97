"""SHA-256 of the files that a family is loaded from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from models.pull import sums_of


def weights_of(family: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Files of the family's settings, hashed, and those of its pulled parts, as they were checked when pulled."""
    found = {f"{part}/{name}": digest for part, name, digest in sums_of(family)}
    for setting, value in settings.items():
        path = Path(str(value))
        if str(value) and path.exists():
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    found[f"{setting}:{file.relative_to(path) if file != path else file.name}"] = _digest(file)
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
