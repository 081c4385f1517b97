"""What one key may use, on a clock turned by hand."""

from __future__ import annotations

import pytest

from server.limits import MOST_ACCOUNTS, Account, Accounts, Admission, Allowance, Limited


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_bounded_unless_it_is_asked_for() -> None:
    account = Account(Allowance(), Clock())
    for _ in range(1000):
        account.begin()
    account.write(10**9)
    account.hear(1e9)


def test_sessions_at_once() -> None:
    account = Account(Allowance(sessions=2), Clock())
    account.begin()
    account.begin()
    with pytest.raises(Limited) as why:
        account.begin()
    assert (why.value.code, why.value.retry_after) == ("rate_limit_exceeded", 1)
    account.end()
    account.begin()


def test_requests_come_back_evenly() -> None:
    clock = Clock()
    account = Account(Allowance(requests=6), clock)
    for _ in range(6):
        account.begin()
    with pytest.raises(Limited):
        account.begin()
    clock.now += 11
    account.begin()
    with pytest.raises(Limited) as why:
        account.begin()
    assert 8 <= why.value.retry_after <= 10
    assert account.held == 7
    clock.now += 600
    for _ in range(6):
        account.begin()
    with pytest.raises(Limited):
        account.begin()


def test_a_long_text_overdraws_and_is_paid_back() -> None:
    clock = Clock()
    account = Account(Allowance(characters=600), clock)
    account.write(1800)
    account.write(0)
    with pytest.raises(Limited) as why:
        account.write(1)
    assert why.value.retry_after == 121
    clock.now += why.value.retry_after
    account.write(1)


def test_sound_is_counted_apart() -> None:
    account = Account(Allowance(seconds=2.0), Clock())
    account.hear(3.0)
    with pytest.raises(Limited, match="2 seconds of sound"):
        account.hear(0.1)
    account.write(10**6)


def test_a_seat_is_given_back_to_its_account() -> None:
    admission, account = Admission(4), Account(Allowance(sessions=1), Clock())
    account.begin()
    seat = admission.enter(account)
    with pytest.raises(Limited):
        account.begin()
    seat.leave()
    seat.leave()
    assert (admission.held, account.held) == (0, 0)


def test_accounts_are_kept_by_name_and_not_without_end() -> None:
    accounts = Accounts(Allowance(sessions=1), Clock())
    held = accounts.of("key")
    held.begin()
    assert accounts.of("key") is held
    for number in range(MOST_ACCOUNTS + 100):
        accounts.of(f"from {number}")
    assert len(accounts) == MOST_ACCOUNTS
    assert accounts.of("key") is held
