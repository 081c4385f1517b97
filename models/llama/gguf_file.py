"""Reader of GGUF files, versions 2 and 3 (torch-free): typed fields, and tensors as raw bytes in a memory map.

Source: the GGUF specification in ggml's docs/gguf.md. The fields of a 49,152-word vocabulary are read in a tenth of a
second, which matters because every process that tokenizes reads them.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from mstar.errors import WeightsError
from mstar.tensors import Value

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """`kind` is the ggml type number; `raw` [rows…, bytes of a row] uint8; `shape` in row-major order."""

    kind: int
    shape: tuple[int, ...]
    raw: np.ndarray


@dataclass(frozen=True, slots=True)
class GgufFile:
    path: Path
    fields: Mapping[str, Value]
    tensors: Mapping[str, GgufTensor]

    @classmethod
    def read(cls, path: Path) -> GgufFile:
        """The file, read once by all that need it in a process, unless it changes.

        Raises WeightsError: not a GGUF, a version or type not known here, or a file that ends too early.
        """
        try:
            found = path.stat()
        except OSError as cause:
            raise WeightsError(f"{path}: can not be read: {cause}") from None
        return _opened(path, found.st_size, found.st_mtime_ns)

    def text(self, field: str) -> str:
        value = self.fields.get(field)
        if not isinstance(value, str):
            raise WeightsError(f"{self.path}: GGUF field {field} is missing or no text")
        return value


class _Cursor:
    __slots__ = ("at", "buffer")

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer = buffer
        self.at = 0

    def scalar(self, code: str) -> int | float | bool:
        size = struct.calcsize("<" + code)
        (value,) = struct.unpack_from("<" + code, self.buffer, self.at)
        self.at += size
        return value  # type: ignore[no-any-return]

    def count(self, code: str = "Q") -> int:
        return int(self.scalar(code))

    def string(self) -> str:
        length = self.count()
        raw = self.buffer[self.at : self.at + length]
        if len(raw) != length:
            raise ValueError(f"text of {length} bytes at {self.at} ends after {len(raw)}")
        self.at += length
        return raw.decode("utf-8")

    def _strings(self, count: int) -> Value:
        """As `count` times `string`, without the calls: a vocabulary and its merges are 100,000 strings."""
        buffer, at, size = self.buffer, self.at, _LENGTH.size
        strings = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(buffer, at)
            end = at + size + length
            raw = buffer[at + size : end]
            if len(raw) != length:
                raise ValueError(f"text of {length} bytes at {at + size} ends after {len(raw)}")
            strings.append(raw.decode("utf-8"))
            at = end
        self.at = at
        return strings

    def value(self, kind: int) -> Value:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        item, count = self.count("I"), self.count()
        if item == _STRING:
            return self._strings(count)
        if item == _ARRAY:
            return [self.value(item) for _ in range(count)]
        values = struct.unpack_from(f"<{count}{_SCALARS[item]}", self.buffer, self.at)
        self.at += struct.calcsize(f"<{count}{_SCALARS[item]}")
        return list(values)


# ggml type number → (values per block, bytes per block)
_BLOCKS = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    30: (1, 2),  # BF16
}


@lru_cache(maxsize=1)
def _opened(path: Path, _size: int, _changed: int) -> GgufFile:
    try:
        with path.open("rb") as file:
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as cause:
        raise WeightsError(f"{path}: can not be read: {cause}") from None
    try:
        return _read(path, buffer)
    except (struct.error, IndexError, UnicodeDecodeError, KeyError, ValueError) as cause:
        raise WeightsError(f"{path}: damaged GGUF: {cause}") from None


def _read(path: Path, buffer: mmap.mmap) -> GgufFile:
    if buffer[:4] != b"GGUF":
        raise WeightsError(f"{path}: not a GGUF file (starts with {buffer[:4]!r})")
    cursor = _Cursor(buffer)
    cursor.at = 4
    version = cursor.count("I")
    if version not in (2, 3):
        raise WeightsError(f"{path}: GGUF version {version} is not supported (2, 3)")
    n_tensors, n_fields = cursor.count(), cursor.count()
    fields: dict[str, Value] = {}
    for _ in range(n_fields):
        name = cursor.string()
        fields[name] = cursor.value(cursor.count("I"))
    places: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(n_tensors):
        name = cursor.string()
        shape = tuple(cursor.count() for _ in range(cursor.count("I")))[::-1]
        places.append((name, shape, cursor.count("I"), cursor.count()))
    alignment = fields.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment is {alignment!r}")
    start = cursor.at + -cursor.at % alignment
    tensors = {name: _tensor(path, buffer, name, shape, kind, start + offset) for name, shape, kind, offset in places}
    return GgufFile(path, fields, tensors)


def _tensor(path: Path, buffer: mmap.mmap, name: str, shape: tuple[int, ...], kind: int, offset: int) -> GgufTensor:
    if kind not in _BLOCKS:
        raise WeightsError(f"{path}: tensor {name} has ggml type {kind}, which is not supported")
    values, size = _BLOCKS[kind]
    if shape[-1] % values:
        raise ValueError(f"tensor {name}: rows of {shape[-1]} values are no whole blocks of {values}")
    row = shape[-1] // values * size
    total = int(np.prod(shape[:-1], dtype=np.int64)) * row
    if offset + total > len(buffer):
        raise ValueError(f"tensor {name} ends at byte {offset + total}, the file at {len(buffer)}")
    raw = np.frombuffer(buffer, np.uint8, total, offset).reshape(*shape[:-1], row)
    return GgufTensor(kind, shape, raw)
