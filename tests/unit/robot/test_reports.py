"""Every report has its proof: a test that exists, or a place in the documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "robot-reports.md"
ROWS = [line for line in DOCUMENT.read_text().splitlines() if re.match(r"\| (?!report|---)", line)]


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def slug(heading: str) -> str:
    """A heading's anchor, as the usual renderers of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def there(proof: str) -> bool:
    """`tests/….py::test_name` or [text](document.md#anchor)."""
    if found := re.fullmatch(r"`(tests/\S+\.py)::(test_\w+)`", proof):
        path, name = found.groups()
        file = ROOT / path
        return file.is_file() and re.search(rf"^(async )?def {name}\(", file.read_text(), re.MULTILINE) is not None
    if found := re.fullmatch(r"\[.+\]\((\S+\.md)#(\S+)\)", proof):
        path, anchor = found.groups()
        file = DOCUMENT.parent / path
        headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE) if file.is_file() else []
        return anchor in {slug(heading) for heading in headings}
    return False


def test_there_are_reports() -> None:
    assert len(ROWS) > 30


@pytest.mark.parametrize("row", ROWS, ids=lambda row: cells(row)[0])
def test_a_report_has_its_proof(row: str) -> None:
    report, seen, kind, here, proof = cells(row)
    assert all((report, seen, kind, here))
    assert there(proof), proof


def test_a_proof_that_is_not_there_is_noticed() -> None:
    assert not there("`tests/unit/robot/test_core.py::test_nothing_of_the_kind`")
    assert not there("`tests/unit/robot/test_nothing.py::test_a`")
    assert not there("[x](robot.md#no-such-place)")
    assert not there("somewhere")
