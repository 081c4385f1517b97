"""The names of the metrics' document."""

from __future__ import annotations

from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"


def documented() -> set[tuple[str, str, tuple[str, ...]]]:
    """(name, type, labels) of every row of the document's table."""
    rows = [line.split("|") for line in DOCUMENT.read_text().splitlines() if line.startswith("| `mstar_")]
    return {(row[1].strip().strip("`"), row[2].strip(), _labels(row[3])) for row in rows}


def _labels(cell: str) -> tuple[str, ...]:
    return tuple(label.strip(" `") for label in cell.split(",") if label.strip(" `"))
