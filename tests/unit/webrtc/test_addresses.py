"""Which addresses peers are offered."""

from __future__ import annotations

import pytest

from mstar.errors import Rejected
from server.webrtc import addresses
from server.webrtc.addresses import Offered, offered, parse


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("127.0.0.1", Offered("127.0.0.1", "127.0.0.1")),
        ("203.0.113.7=10.0.0.5", Offered("10.0.0.5", "203.0.113.7")),
        ("10.0.0.5@50000-50100", Offered("10.0.0.5", "10.0.0.5", (50000, 50100))),
        ("203.0.113.7=10.0.0.5@50000-50000", Offered("10.0.0.5", "203.0.113.7", (50000, 50000))),
        ("2001:db8::2@6000-6001", Offered("2001:db8::2", "2001:db8::2", (6000, 6001))),
    ],
)
def test_candidates_are_read(text: str, meant: Offered) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    "text", ["", "host.example", "10.0.0.5@", "10.0.0.5@9-8", "10.0.0.5@0-9", "10.0.0.5@1-70000", "=10.0.0.5", "a=b=c"]
)
def test_wrong_candidates_are_refused_by_name(text: str) -> None:
    with pytest.raises(Rejected, match="expected") as refusal:
        parse(text)
    assert refusal.value.param == "candidate"


def test_without_candidates_all_addresses_of_the_host_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "get_host_addresses", lambda *, use_ipv4, use_ipv6: ["10.1.1.1", "2001:db8::1"])
    assert [each.address for each in offered(())] == ["10.1.1.1", "2001:db8::1"]


def test_a_host_without_network_offers_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "get_host_addresses", lambda *, use_ipv4, use_ipv6: [])
    assert offered(()) == (Offered("127.0.0.1", "127.0.0.1"),)
