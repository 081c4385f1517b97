"""The transport that a placement names."""

from __future__ import annotations

from pathlib import Path

from mstar.transport.api import Transport
from mstar.transport.inline import InlineTransport
from mstar.transport.shared import SharedTransport
from mstar.transport.tcp import TcpTransport


def transport_of(kind: str, worker: str, directory: Path, host: str) -> Transport:
    """`kind` of `mstar.placement.TRANSPORTS`; `directory`: the run's, with its key; `host`: the rank's address."""
    match kind:
        case "inline":
            return InlineTransport()
        case "tcp":
            return TcpTransport((directory / "key").read_bytes(), host=host)
        case _:
            return SharedTransport(worker, directory)
