"""Garbage in cycles is not looked for while a worker loads, and what it has loaded is not looked through afterwards."""

from __future__ import annotations

import gc

from mstar.node.loading import hold, settle


def test_what_was_loaded_is_left_alone_and_what_comes_is_collected() -> None:
    before = gc.get_freeze_count()
    try:
        hold()
        assert not gc.isenabled()
        loaded: list[object] = [[] for _ in range(10_000)]
        settle()
        assert gc.isenabled()
        assert gc.get_freeze_count() - before >= len(loaded)
        later: list[object] = []
        later.append(later)
        assert any(each is later for each in gc.get_objects())
        assert not any(each is loaded for each in gc.get_objects())
    finally:
        gc.unfreeze()
        gc.enable()
