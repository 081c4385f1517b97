"""An address is taken before anything else is begun, or the server says at once that it can not be."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mstar.placement import one_rank
from server import serve
from server.listening import bound
from server.settings import Settings

SETTINGS = Settings(("toy",), port=0)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Launches of the runtime: there are to be none."""
    launched: list[Any] = []
    monkeypatch.setattr(serve, "launch", launched.append)
    return launched


def test_a_busy_port_is_noticed_before_any_process_is_started(started: list[Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"^127.0.0.1:{port}: address already in use$"):
            serve.run(replace(SETTINGS, port=port), {}, {}, one_rank(1))
    assert started == []


def test_so_are_a_folder_that_can_not_be_made_and_a_certificate_that_is_not_there(
    started: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for wrong in (replace(SETTINGS, record=tmp_path / "file" / "x"), replace(SETTINGS, certificate=tmp_path / "none")):
        with pytest.raises(OSError, match=r"Not a directory|No such file"):
            serve.run(wrong, {}, {}, one_rank(1))
    assert started == []


def test_every_address_of_a_name_is_bound_or_none() -> None:
    sockets = bound("localhost", 0)
    assert sockets
    for each in sockets:
        assert each.getsockname()[0] in {"127.0.0.1", "::1"}
        each.close()
    with pytest.raises(OSError, match=r"^nowhere\.invalid: "):
        bound("nowhere.invalid", 0)
