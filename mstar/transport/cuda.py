"""A CUDA device's memory between processes: six calls of the CUDA runtime, by ctypes.

torch has no public call for this: its own sharing exports the blocks of its allocator one by one, with a reference
count for each, and can not where the allocator's segments grow. `cudaIpcGetMemHandle` and `cudaIpcOpenMemHandle` are
documented and have not changed since CUDA 4.1; they export one allocation once. The memory is the driver's own
(`cudaMalloc`), however torch's allocator is set up.
"""

from __future__ import annotations

import ctypes
from functools import cached_property

import torch
from torch import Tensor

from mstar.transport.device import HANDLE, Refused

_LAZY_PEER_ACCESS = 1
"""`cudaIpcMemLazyEnablePeerAccess`, the one flag that there is."""
_ANY_DIRECTION = 4
"""`cudaMemcpyDefault`: the addresses say where they lie."""


class _Handle(ctypes.Structure):
    """`cudaIpcMemHandle_t`."""

    _fields_ = (("reserved", ctypes.c_ubyte * HANDLE),)


class CudaMemory:
    """See `DeviceMemory`. Copies have a stream of their own: what comes in does not wait for the step in flight."""

    def __init__(self, device: str) -> None:
        """Touches nothing: what it needs is loaded when the first tensor leaves or comes."""
        self._name = device

    def allocate(self, size: int) -> int:
        address = ctypes.c_void_p()
        self._call("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value or 0

    def free(self, address: int) -> None:
        self._call("cudaFree", ctypes.c_void_p(address))

    def export(self, address: int) -> bytes:
        handle = _Handle()
        self._call("cudaIpcGetMemHandle", ctypes.byref(handle), ctypes.c_void_p(address))
        return bytes(handle.reserved)

    def map(self, handle: bytes) -> int:
        address = ctypes.c_void_p()
        given = _Handle.from_buffer_copy(handle)
        self._call("cudaIpcOpenMemHandle", ctypes.byref(address), given, ctypes.c_uint(_LAZY_PEER_ACCESS))
        return address.value or 0

    def unmap(self, address: int) -> None:
        self._call("cudaIpcCloseMemHandle", ctypes.c_void_p(address))

    def write(self, address: int, tensor: Tensor) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            plain = tensor.detach().contiguous()
            self._copy(address, plain.data_ptr(), plain.nbytes)

    def read(self, address: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        with torch.cuda.stream(self._stream):
            fresh = torch.empty(shape, dtype=dtype, device=self._device)
            self._copy(fresh.data_ptr(), address, fresh.nbytes)
        return self._handed_over(fresh)

    def upload(self, tensor: Tensor) -> Tensor:
        with torch.cuda.stream(self._stream):
            fresh = tensor.to(self._device)
        self._stream.synchronize()
        return self._handed_over(fresh)

    def _copy(self, target: int, source: int, size: int) -> None:
        where = (ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(size))
        stream = ctypes.c_void_p(self._stream.cuda_stream)
        self._call("cudaMemcpyAsync", *where, ctypes.c_int(_ANY_DIRECTION), stream)
        self._stream.synchronize()

    def _handed_over(self, fresh: Tensor) -> Tensor:
        """Its memory is not given to another tensor of our stream while steps on the device's main stream use it."""
        fresh.record_stream(torch.cuda.default_stream(self._device))
        return fresh

    def _call(self, name: str, *arguments: object) -> None:
        with torch.cuda.device(self._device):
            status = getattr(self._runtime, name)(*arguments)
            if status:
                self._runtime.cudaGetLastError()  # or torch would find it behind its next kernel
                told = ctypes.c_char_p(self._runtime.cudaGetErrorString(status)).value or b""
                raise Refused(f"{name}: {told.decode()}")

    @cached_property
    def _device(self) -> torch.device:
        given = torch.device(self._name)
        return torch.device("cuda", torch.cuda.current_device() if given.index is None else given.index)

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self._device)

    @cached_property
    def _runtime(self) -> ctypes.CDLL:
        """The runtime that torch has loaded."""
        major = str(torch.version.cuda).partition(".")[0]
        for name in (f"libcudart.so.{major}", "libcudart.so"):
            try:
                found = ctypes.CDLL(name)
            except OSError:
                continue
            found.cudaGetErrorString.restype = ctypes.c_void_p
            return found
        raise Refused(f"libcudart.so.{major} can not be loaded")
