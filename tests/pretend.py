"""A device that is not there: tensors that say they lie on `cuda:0`, and its memory between processes, on a CPU.

Inside `pretending()`, what is made on or moved to `cuda` keeps its numbers in the host's memory, but is of another
device to all who ask: mixed with tensors of the host it raises as torch does on a CUDA device, numpy can not read it,
and each crossing is counted. The operators are those of a CPU, so that results are equal to the host's bit for bit.

`PretendMemory` stands for the driver's calls: memory of a file that another process maps by a handle.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mstar.transport.device import HANDLE, Refused

CUDA = torch.device("cuda", 0)


class OnDevice(Tensor):
    """A tensor that says it lies on a CUDA device."""

    device = CUDA
    is_cuda = True
    is_cpu = False

    def __array__(self, *_: object) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")

    def numpy(self, **_: object) -> Any:
        return self.__array__()

    def record_stream(self, _: object) -> None:
        """Nothing is given to others too early: the host's allocator knows no streams."""


class Pretending(TorchFunctionMode):
    """`crossings`: "up" and "down" count tensors that were copied to the device and from it, "read" single values.

    `entered`: devices that were made the current one; `waits`: how often the host has waited for the device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.crossings: Counter[str] = Counter(up=0, down=0, read=0)
        self.entered: list[str] = []
        self.waits = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        held = list(_tensors((args, given)))
        ours = any(isinstance(each, OnDevice) for each in held)
        with torch._C.DisableTorchFunctionSubclass():
            if name in {"to", "cpu", "cuda"} and held:
                return self._moved(func, name, args, given, ours)
            target = given.get("device")
            if target is not None and torch.device(target).type == "cuda":
                self.crossings["up"] += name in {"tensor", "as_tensor"} and not ours
                return _put(func(*args, **{**given, "device": "cpu"}))
            if not ours:
                return func(*args, **given)
            if name in _READS:
                self.crossings["read"] += 1
                return func(*args, **given)
            if name in {"numpy", "__array__"}:
                raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
            self._check(name, args, held)
            return func(*args, **given) if name == "__get__" and not _makes(func) else _put(func(*args, **given))

    def _moved(
        self, func: Callable[..., Any], name: str, args: Sequence[Any], given: dict[str, Any], ours: bool
    ) -> Tensor:
        """`x.to(…)` with a device, a tensor or a type; `x.cpu()`; `x.cuda()`."""
        target = {"cpu": "cpu", "cuda": "cuda"}.get(name, given.pop("device", None))
        rest = []
        for each in args[1:]:
            if isinstance(each, Tensor):
                target, given["dtype"] = "cuda" if isinstance(each, OnDevice) else "cpu", each.dtype
            elif isinstance(each, torch.device) or (isinstance(each, str) and target is None):
                target = each
            else:
                rest.append(each)
        there = ours if target is None else torch.device(target).type == "cuda"
        plain: Tensor = args[0].as_subclass(Tensor)
        moved = plain.to(*rest, **given) if name == "to" and (rest or given) else plain
        if there != ours:
            self.crossings["up" if there else "down"] += 1
            moved = moved.clone() if moved is plain else moved
        return moved.as_subclass(OnDevice) if there else moved

    def _check(self, name: str, args: Sequence[Any], held: Sequence[Tensor]) -> None:
        """Raises RuntimeError where tensors of two devices meet that may not: numbers alone may, and indices."""
        strangers = [each for each in held if not isinstance(each, OnDevice) and each.dim()]
        if not strangers:
            return
        if name in {"copy_", "__setitem__"} or (name == "__getitem__" and isinstance(args[0], OnDevice)):
            self.crossings["up" if isinstance(args[0], OnDevice) else "down"] += len(strangers)
            return
        raise RuntimeError(f"{name}: expected all tensors to be on the same device, got cuda:0 and cpu")


_READS = frozenset({"item", "tolist", "__int__", "__float__", "__bool__", "__index__", "__format__", "__repr__"})


def _makes(func: Callable[..., Any]) -> bool:
    """Whether a property of a tensor is a tensor."""
    return func in {getattr(Tensor, name).__get__ for name in ("T", "mT", "real", "imag", "data")}


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _put(value: Any) -> Any:
    """The tensors of a result as the device's."""
    if isinstance(value, Tensor):
        return value if isinstance(value, OnDevice) else value.as_subclass(OnDevice)
    if isinstance(value, list | tuple):
        return type(value)([_put(each) for each in value])
    return value


class _Stream:
    cuda_stream = 0x5A

    def __init__(self, mode: Pretending) -> None:
        self._mode = mode

    def synchronize(self) -> None:
        self._mode.waits += 1

    def wait_stream(self, _: object) -> None:
        pass


@contextmanager
def pretending(free: int = 1 << 34) -> Iterator[Pretending]:
    """`free`: bytes that the device has left."""
    mode = Pretending()

    def stream(_: object = None) -> _Stream:
        return _Stream(mode)

    @contextmanager
    def current(what: object) -> Iterator[None]:
        if not isinstance(what, _Stream):
            mode.entered.append(str(what))
        yield

    with (
        patch.multiple(
            torch.cuda,
            is_available=lambda: True,
            device_count=lambda: 1,
            device=current,
            stream=current,
            Stream=stream,
            current_device=lambda: 0,
            current_stream=stream,
            default_stream=stream,
            mem_get_info=lambda _device=None: (free, free),
        ),
        mode,
    ):
        yield mode


_MAPPED = struct.Struct("<QQQQ")  # pid, descriptor, inode, bytes


class PretendMemory:
    """See `mstar.transport.device.DeviceMemory`. `refuses`: the calls that the driver denies."""

    def __init__(self, *refuses: str) -> None:
        self.refuses = set(refuses)
        self.calls: Counter[str] = Counter()
        self.held: dict[int, tuple[int, mmap.mmap, Any]] = {}  # address → descriptor, mapping, what keeps it there

    def allocate(self, size: int) -> int:
        self._call("allocate")
        file = os.memfd_create("pretended")
        os.ftruncate(file, size)
        return self._hold(file, size)

    def free(self, address: int) -> None:
        self._call("free")
        self._let_go(address)

    def export(self, address: int) -> bytes:
        self._call("export")
        file, mapping, _ = self.held[address]
        return _MAPPED.pack(os.getpid(), file, os.fstat(file).st_ino, len(mapping)).ljust(HANDLE, b"\0")

    def map(self, handle: bytes) -> int:
        self._call("map")
        pid, number, inode, size = _MAPPED.unpack(handle[: _MAPPED.size])
        file = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR)
        assert os.fstat(file).st_ino == inode
        return self._hold(file, size)

    def unmap(self, address: int) -> None:
        self._call("unmap")
        self._let_go(address)

    def write(self, address: int, tensor: Tensor) -> None:
        self._call("write")
        plain = tensor.as_subclass(Tensor).contiguous()
        ctypes.memmove(address, plain.data_ptr(), plain.nbytes)

    def read(self, address: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        self._call("read")
        fresh = torch.empty(shape, dtype=dtype)
        ctypes.memmove(fresh.data_ptr(), address, fresh.nbytes)
        return fresh.as_subclass(OnDevice)

    def upload(self, tensor: Tensor) -> Tensor:
        self._call("upload")
        return tensor.clone().as_subclass(OnDevice)

    def _call(self, name: str) -> None:
        self.calls[name] += 1
        if name in self.refuses:
            raise Refused(f"{name}: not permitted")

    def _hold(self, file: int, size: int) -> int:
        mapping = mmap.mmap(file, size)
        anchor = ctypes.c_char.from_buffer(mapping)
        address = ctypes.addressof(anchor)
        self.held[address] = (file, mapping, anchor)
        return address

    def _let_go(self, address: int) -> None:
        file, mapping, anchor = self.held.pop(address)
        del anchor
        mapping.close()
        os.close(file)
