"""What a transport asks of the memory of a rank's device."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from mstar.carried import Crate
from mstar.errors import Rejected
from mstar.transport.api import Gone

HANDLE = 64
"""Bytes of a handle by which another process maps memory."""


class Refused(Exception):
    """The driver denies it: no memory left, no peer access, processes that may not see each other's memory."""


class DeviceMemory(Protocol):
    """One device's memory. Every copy is complete when the call returns, and comes after what the caller's thread has
    asked of the device before. Raises Refused.
    """

    def allocate(self, size: int) -> int:
        """Address of `size` bytes that can be exported."""
        ...

    def free(self, address: int) -> None: ...

    def export(self, address: int) -> bytes:
        """A handle of `HANDLE` bytes for what `allocate` gave."""
        ...

    def map(self, handle: bytes) -> int:
        """Address at which this process reads what another one exported, on this device or on another."""
        ...

    def unmap(self, address: int) -> None: ...

    def write(self, address: int, tensor: Tensor) -> None:
        """Copy a tensor of the device to an address, in C order."""
        ...

    def read(self, address: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor of its own on the device, with what lies at an address."""
        ...

    def upload(self, tensor: Tensor) -> Tensor:
        """A tensor of the host as one of the device."""
        ...


def denied(why: str) -> Rejected:
    """What ends a request whose tensor the device does not take, or give."""
    return Rejected(f"device memory: {why}", code="device_memory")


def on_device(tensor: Tensor) -> bool:
    """Whether a tensor lies elsewhere than in the host's memory."""
    return tensor.device.type != "cpu"


class OverHost:
    """Where device tensors land that came over the host (see `mstar.transport.crates.Landing`): on the device of
    `memory`, or where there is none on the host.
    """

    def __init__(self, memory: DeviceMemory | None) -> None:
        self._memory = memory

    def land(self, tensor: Tensor) -> Tensor:
        """Raises Rejected if the device has no room for it."""
        if self._memory is None:
            return tensor
        try:
            return self._memory.upload(tensor)
        except Refused as why:
            raise denied(str(why)) from why

    def take(self, crate: Crate) -> Tensor:
        raise Gone(f"no device memory is mapped here, {crate} names some")

    def offered(self, arena: str) -> None:
        pass
