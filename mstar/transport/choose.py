"""The transport that a placement names."""

from __future__ import annotations

from pathlib import Path

from mstar.transport.api import Transport
from mstar.transport.cuda import CudaMemory
from mstar.transport.inline import InlineTransport
from mstar.transport.shared import SharedTransport
from mstar.transport.tcp import TcpTransport


def transport_of(kind: str, worker: str, directory: Path, host: str, device: str) -> Transport:
    """`kind` of `mstar.placement.TRANSPORTS`; `directory`: the run's, with its key; `host`, `device`: the rank's."""
    memory = CudaMemory(device) if device.startswith("cuda") else None
    match kind:
        case "inline":
            return InlineTransport(memory)
        case "tcp":
            return TcpTransport((directory / "key").read_bytes(), host=host, memory=memory)
        case _:
            return SharedTransport(worker, directory, memory=memory)
