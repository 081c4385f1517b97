"""A CUDA device's memory between processes: six calls of the CUDA runtime, by ctypes.

torch has no public call for this: its own sharing exports the blocks of its allocator one by one, with a reference
count for each, and can not where the allocator's segments grow. `cudaIpcGetMemHandle` and `cudaIpcOpenMemHandle` are
documented and have not changed since CUDA 4.1; they export one allocation once. The memory is the driver's own
(`cudaMalloc`), however torch's allocator is set up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import CDLL, POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_void_p
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mstar.transport.device import HANDLE, Refused

_LAZY_PEER_ACCESS = 1
"""`cudaIpcMemLazyEnablePeerAccess`, the one flag that there is."""
_ANY_DIRECTION = 4
"""`cudaMemcpyDefault`: the addresses say where they lie."""


class _Handle(Structure):
    """`cudaIpcMemHandle_t`, which is passed by value."""

    _fields_ = (("reserved", c_ubyte * HANDLE),)


_ARGUMENTS: Mapping[str, tuple[Any, ...]] = {
    "cudaMalloc": (POINTER(c_void_p), c_size_t),
    "cudaFree": (c_void_p,),
    "cudaIpcGetMemHandle": (POINTER(_Handle), c_void_p),
    "cudaIpcOpenMemHandle": (POINTER(c_void_p), _Handle, c_uint),
    "cudaIpcCloseMemHandle": (c_void_p,),
    "cudaMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "cudaGetLastError": (),
    "cudaGetErrorString": (c_int,),
}


def load_runtime(name: str) -> CDLL:
    """The library with the types of what is called. Raises OSError if there is none of this name."""
    library = CDLL(name)
    for call, arguments in _ARGUMENTS.items():
        function = getattr(library, call)
        function.argtypes, function.restype = arguments, c_int
    library.cudaGetErrorString.restype = c_char_p
    return library


@contextmanager
def _refusing() -> Iterator[None]:
    """Where torch's allocator finds no memory, the device refuses."""
    try:
        yield
    except torch.OutOfMemoryError as why:
        raise Refused(str(why).partition("\n")[0]) from why


class CudaMemory:
    """See `DeviceMemory`. Copies have a stream of their own: what comes in does not wait for the step in flight."""

    def __init__(self, device: str) -> None:
        """Touches nothing: what it needs is loaded when the first tensor leaves or comes."""
        self._name = device

    def allocate(self, size: int) -> int:
        address = c_void_p()
        self._call("cudaMalloc", byref(address), size)
        return address.value or 0

    def free(self, address: int) -> None:
        self._call("cudaFree", address)

    def export(self, address: int) -> bytes:
        handle = _Handle()
        self._call("cudaIpcGetMemHandle", byref(handle), address)
        return bytes(handle.reserved)

    def map(self, handle: bytes) -> int:
        address = c_void_p()
        self._call("cudaIpcOpenMemHandle", byref(address), _Handle.from_buffer_copy(handle), _LAZY_PEER_ACCESS)
        return address.value or 0

    def unmap(self, address: int) -> None:
        self._call("cudaIpcCloseMemHandle", address)

    def write(self, address: int, tensor: Tensor) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            plain = tensor.detach().contiguous()
            self._copy(address, plain.data_ptr(), plain.nbytes)

    def read(self, address: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        with torch.cuda.stream(self._stream), _refusing():
            fresh = torch.empty(shape, dtype=dtype, device=self._device)
            self._copy(fresh.data_ptr(), address, fresh.nbytes)
        return self._handed_over(fresh)

    def upload(self, tensor: Tensor) -> Tensor:
        with torch.cuda.stream(self._stream), _refusing():
            fresh = tensor.to(self._device)
        self._stream.synchronize()
        return self._handed_over(fresh)

    def _copy(self, target: int, source: int, size: int) -> None:
        self._call("cudaMemcpyAsync", target, source, size, _ANY_DIRECTION, self._stream.cuda_stream)
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
                raise Refused(f"{name}: {self._runtime.cudaGetErrorString(status).decode()}")

    @cached_property
    def _device(self) -> torch.device:
        given = torch.device(self._name)
        return torch.device("cuda", torch.cuda.current_device() if given.index is None else given.index)

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self._device)

    @cached_property
    def _runtime(self) -> CDLL:
        """The runtime that torch has loaded."""
        major = str(torch.version.cuda).partition(".")[0]
        for name in (f"libcudart.so.{major}", "libcudart.so"):
            try:
                return load_runtime(name)
            except OSError:
                continue
        raise Refused(f"libcudart.so.{major} can not be loaded")
