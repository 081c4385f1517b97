"""What is over when a process has been replaced is 503 over HTTP, and no fault of the caller's."""

from __future__ import annotations

import pytest

from mstar.errors import Rejected
from server.door import refusal
from server.security import PASSING


@pytest.mark.parametrize("code", sorted(PASSING))
def test_losses_say_when_to_come_again(code: str) -> None:
    said = refusal(Rejected("gone", code=code))
    assert (said.status, said.code) == (503, code)
    assert said.retry_after


def test_what_can_not_be_does_not() -> None:
    said = refusal(Rejected("no such voice", code="voice_not_found", param="voice"))
    assert (said.status, said.param, said.retry_after) == (400, "voice", None)
