"""A TCP port that nobody listened on a moment ago."""

from __future__ import annotations

import socket


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
