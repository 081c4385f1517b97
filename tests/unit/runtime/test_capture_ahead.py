"""A rank that can not capture its steps does not start, and says why."""

from __future__ import annotations

from typing import Any

import pytest

from models.orpheus.model import FAMILY
from mstar.engine.kv_engine import KVCacheEngine
from mstar.errors import GraphError
from mstar.local import LocalSystem


def test_what_a_library_says_stands_in_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: KVCacheEngine) -> Any:
        raise RuntimeError("could not find nvcc\nand much more")

    monkeypatch.setattr(KVCacheEngine, "capture", fail)
    with pytest.raises(GraphError, match=r"rank main: steps .* on cpu: RuntimeError: could not find nvcc \(`graphs: f"):
        LocalSystem({"orpheus": FAMILY.graph({})}, settings={"orpheus": {"tiny": True}})
