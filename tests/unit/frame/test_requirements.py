from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(*names: str) -> dict[str, str]:
    """Exact versions by canonical name; a line that is no exact pin fails."""
    found: dict[str, str] = {}
    for name in names:
        for line in (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines():
            if line.startswith("#"):
                continue
            requirement = Requirement(line)
            (specifier,) = requirement.specifier
            assert specifier.operator == "=="
            assert requirement.url is None
            key = canonicalize_name(requirement.name)
            assert key not in found, f"{key} is pinned twice"
            found[key] = specifier.version
    return found


@pytest.mark.parametrize(
    ("loose", "lists"),
    [
        (PROJECT["dependencies"], ["run"]),
        (PROJECT["optional-dependencies"]["test"], ["run", "test"]),
        (PROJECT["optional-dependencies"]["bench"], ["run", "test", "bench"]),
    ],
    ids=["run", "test", "bench"],
)
def test_every_dependency_is_pinned_within_its_range(loose: list[str], lists: list[str]) -> None:
    pinned = pins(*lists)
    for requirement in map(Requirement, loose):
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} does not allow the pinned {version}"


def test_torch_is_pinned_without_a_local_version() -> None:
    assert "+" not in pins("run")["torch"]
