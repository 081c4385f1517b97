"""What options of the command line may be: each value is checked when it is read."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from pathlib import Path

from aiortc.rtcicetransport import parse_stun_turn_uri

from mstar.errors import Rejected
from server.webrtc.addresses import parse


def _whole(text: str, least: int, most: float, what: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ArgumentTypeError(f"{text!r} is not {what}")
    return value


def port(text: str) -> int:
    """0 = whichever is free."""
    return _whole(text, 0, 65_535, "a port, 0 to 65535")


def count(text: str) -> int:
    """At least one."""
    return _whole(text, 1, math.inf, "a whole number of at least 1")


def bound(text: str) -> int:
    """0 = no bound."""
    return _whole(text, 0, math.inf, "a whole number of at least 0")


def amount(text: str) -> float:
    """A number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def seconds(text: str) -> float:
    """A time of some length."""
    value = amount(text)
    if not value:
        raise ArgumentTypeError("it must be more than 0 seconds")
    return value


def candidate(text: str) -> str:
    """An address offered to WebRTC peers."""
    try:
        parse(text)
    except Rejected as why:
        raise ArgumentTypeError(str(why)) from None
    return text


def ice_server(text: str) -> str:
    """A STUN or TURN URL (RFC 7064, RFC 7065)."""
    try:
        parse_stun_turn_uri(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not stun:HOST[:PORT] or turn:HOST[:PORT]") from None
    return text


def pages(text: str) -> Path:
    """A folder with an index.html."""
    folder = Path(text)
    if not (folder / "index.html").is_file():
        raise ArgumentTypeError(f"{text}: no folder with an index.html")
    return folder
