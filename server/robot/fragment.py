"""Pieces of SDP with which peers tell addresses one by one (RFC 8840) (pure)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from mstar.errors import Rejected

MOST = 100
"""Lines of a fragment."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """`user`: ICE user name, "" if it tells none; `candidates`: (section, candidate without "candidate:")."""

    user: str
    candidates: tuple[tuple[str, str], ...]


def read_fragment(text: str) -> Fragment:
    """Raises Rejected for what is none. Candidates that can not be used (TCP, names) are passed over."""
    user, mid, found = "", "", []
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line]
    if len(lines) > MOST:
        raise Rejected(f"a fragment has at most {MOST} lines", code="invalid_fragment")
    for line in lines:
        if len(line) < 2 or line[1] != "=":
            raise Rejected(f"{line!r:.80} is no line of SDP", code="invalid_fragment")
        name, _, value = line[2:].partition(":")
        match line[0], name:
            case "m", _:
                mid = ""
            case "a", "mid":
                mid = value
            case "a", "ice-ufrag":
                user = value
            case "a", "candidate" if _usable(value):
                found.append((mid, value))
            case _:
                pass
    return Fragment(user, tuple(found))


def _usable(candidate: str) -> bool:
    parts = candidate.split()
    if len(parts) < 8 or parts[2].lower() != "udp":
        return False
    try:
        ipaddress.ip_address(parts[4])
    except ValueError:
        return False  # a name would have to be looked up
    return True
