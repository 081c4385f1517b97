"""Keys, hosts and origins; what is refused and with which status."""

from __future__ import annotations

import pytest

from server.events.session import SessionPatch
from server.limits import Admission, ErrorBudget, Full
from server.security import Grant, Keys, Refusal, check_host, check_origin, key_of


@pytest.mark.parametrize(
    ("host", "fine"),
    [
        ("localhost", True),
        ("localhost:8000", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("192.168.1.5", True),
        ("app.localhost:1", True),
        ("friend.example", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8000", False),
        ("", False),
        ("[", False),
        ("[::1", False),
        ("[v1.x]", False),
        ("\udcff", False),
    ],
)
def test_hosts(host: str, fine: bool) -> None:
    if fine:
        check_host(host, ["friend.example"])
    else:
        with pytest.raises(Refusal) as refusal:
            check_host(host, ["friend.example"])
        assert refusal.value.status == 403


@pytest.mark.parametrize(
    ("origin", "fine"),
    [
        (None, True),
        ("http://localhost:8000", True),
        ("https://localhost:8000", True),
        ("https://friend.example", True),
        ("http://localhost:9000", False),
        ("http://evil.example", False),
        ("null", False),
        ("file://", False),
        ("http://[", False),
        ("\udcff", False),
        ("https://friend.example.evil.example", False),
    ],
)
def test_origins(origin: str | None, fine: bool) -> None:
    if fine:
        check_origin(origin, "localhost:8000", ["https://friend.example"])
    else:
        with pytest.raises(Refusal):
            check_origin(origin, "localhost:8000", ["https://friend.example"])


def test_where_keys_are() -> None:
    assert key_of({"Authorization": "Bearer abc"}) == "abc"
    assert key_of({"Authorization": "bearer  abc "}) == "abc"
    assert key_of({"Authorization": "Basic abc"}) is None
    assert key_of({"Sec-WebSocket-Protocol": "realtime, openai-insecure-api-key.xyz, other"}) == "xyz"
    assert key_of({}) is None


def test_client_secrets_expire_and_mint_no_others() -> None:
    keys = Keys(["one", "two"])
    patch = SessionPatch("realtime")
    secret = keys.mint(Grant("toy", patch), now=1000, seconds=60)
    assert keys.check(secret.value, 1059).session is patch
    for key, now, master in (
        (secret.value, 1060, False),
        (secret.value, 1000, True),
        (None, 0, False),
        ("on", 0, False),
    ):
        with pytest.raises(Refusal) as refusal:
            keys.check(key, now, master=master)
        assert refusal.value.status == 401
    accounts = [keys.check(each, 0).account for each in ("one", "two", "two")]
    assert accounts[0] != accounts[1] == accounts[2] != ""
    assert "two" not in accounts[1]


def test_without_keys_everybody_may_come_but_not_with_a_wrong_secret() -> None:
    keys = Keys([])
    assert keys.check(None, 0) == Grant()
    assert keys.check("anything", 0) == Grant()
    with pytest.raises(Refusal):
        keys.check("ek_unknown", 0)


def test_seats_are_given_back_once() -> None:
    admission = Admission(1)
    seat = admission.enter()
    with pytest.raises(Full):
        admission.enter()
    seat.leave()
    seat.leave()
    assert admission.held == 0
    admission.draining = True
    with pytest.raises(Full):
        admission.enter()


def test_mistakes_are_forgotten_after_a_minute() -> None:
    budget = ErrorBudget(most=3)
    assert [budget.spend(at) for at in (0, 1, 2, 3)] == [True, True, True, False]
    assert budget.spend(100)
