"""Which addresses and ports are offered to peers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from aioice.ice import get_host_addresses

from mstar.errors import Rejected

_OFFER = re.compile(r"^(?:(?P<public>[^=@]+)=)?(?P<address>[^=@]+)(?:@(?P<low>\d+)-(?P<high>\d+))?$")
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Offered:
    """An address to listen on; `public` is told to peers in its place, `ports` bounds the port (first, last)."""

    address: str
    public: str
    ports: tuple[int, int] | None = None


def parse(text: str) -> Offered:
    """`ADDRESS`, `PUBLIC=ADDRESS` (behind a NAT that keeps ports), each with `@FIRST-LAST`. Raises Rejected."""
    match = _OFFER.match(text)
    wrong = Rejected(f"candidate {text!r}: expected [PUBLIC=]ADDRESS[@FIRST-LAST]", param="candidate")
    if match is None:
        raise wrong
    address, public = match["address"], match["public"] or match["address"]
    for each in (address, public):
        try:
            ipaddress.ip_address(each)
        except ValueError:
            raise wrong from None
    if match["low"] is None:
        return Offered(address, public)
    low, high = int(match["low"]), int(match["high"])
    if not 1 <= low <= high <= 65535:
        raise wrong
    return Offered(address, public, (low, high))


def offered(candidates: Iterable[str]) -> tuple[Offered, ...]:
    """The addresses given, or all of the host's; on a host with no network, loopback."""
    given = tuple(parse(each) for each in candidates)
    if given:
        return given
    found = get_host_addresses(use_ipv4=True, use_ipv6=True) or [LOOPBACK]
    return tuple(Offered(each, each) for each in found)
