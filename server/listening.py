"""The sockets a server listens on, taken before anything else is begun."""

from __future__ import annotations

import os
import socket


def bound(host: str, port: int) -> list[socket.socket]:
    """One socket for every address of `host`; they do not listen yet. Raises OSError, one line with the address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as why:
        raise OSError(f"{host}: {why.strerror}") from None
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sockets.append(_bound(family, kind, protocol, address))
    except OSError as why:
        for each in sockets:
            each.close()
        cause = os.strerror(why.errno).lower() if why.errno else str(why)
        raise OSError(f"{host}:{port}: {cause}") from None
    return sockets


def _bound(family: int, kind: int, protocol: int, address: object) -> socket.socket:
    each = socket.socket(family, kind, protocol)
    try:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        each.bind(address)  # type: ignore[arg-type]
    except OSError:
        each.close()
        raise
    return each
