from __future__ import annotations

import pytest

from tests.absent import absent


def test_absence_skips_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such thing"):
        absent("no such thing")


def test_absence_fails_where_all_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUIRE_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="no such thing"):
        absent("no such thing")
