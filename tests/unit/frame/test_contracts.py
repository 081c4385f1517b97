from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
}
TORCH_SIDE = {"mstar.engine", "mstar.submodule", "mstar.worker", "mstar.node", "mstar.local", "mstar.transport"}


def children(package: str) -> set[str]:
    """Modules and packages right below a package."""
    folder = ROOT / package
    names = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    return {f"{package}.{name}" for name in names - {"__init__", "__main__"}}


def test_every_package_of_the_runtime_is_held_torch_free_unless_it_computes() -> None:
    assert children("mstar") - TORCH_SIDE <= set(CONTRACTS["torch-free"]["source_modules"])


def test_client_and_conductor_are_held_away_from_the_engines() -> None:
    control = {"mstar.client", "mstar.conductor"} & children("mstar")
    assert control == set(CONTRACTS["control-without-engines"]["source_modules"])
