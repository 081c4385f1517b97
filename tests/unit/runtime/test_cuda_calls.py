"""What is asked of the CUDA runtime, by a library of the same functions that has the host's memory."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mstar.transport.cuda import CudaMemory, load_runtime
from mstar.transport.device import HANDLE, Refused
from tests.absent import absent
from tests.pretend import CUDA, pretending

RUNTIME = r"""
#include <stdlib.h>
#include <string.h>

typedef struct { char reserved[64]; } handle;
static int last;
static int told(int status) { if (status) last = status; return status; }

int cudaMalloc(void **address, size_t size) {
    if (size > (1ul << 40)) return told(2);
    *address = malloc(size);
    return 0;
}
int cudaFree(void *address) { free(address); return 0; }
int cudaIpcGetMemHandle(handle *given, void *address) {
    memset(given, 0, 64);
    memcpy(given->reserved, &address, 8);
    given->reserved[63] = 7;
    return 0;
}
int cudaIpcOpenMemHandle(void **address, handle given, unsigned flags) {
    if (flags != 1 || given.reserved[63] != 7) return told(201);
    memcpy(address, given.reserved, 8);
    return 0;
}
int cudaIpcCloseMemHandle(void *address) { return address ? 0 : told(1); }
int cudaMemcpyAsync(void *target, const void *source, size_t size, int kind, void *stream) {
    if (kind != 4 || stream != (void *)0x5a) return told(21);
    memcpy(target, source, size);
    return 0;
}
int cudaGetLastError(void) { int status = last; last = 0; return status; }
const char *cudaGetErrorString(int status) { return status == 2 ? "out of memory" : "invalid argument"; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        absent("there is no C compiler")
    folder: Path = tmp_path_factory.mktemp("cudart")
    (folder / "cudart.c").write_text(RUNTIME)
    made = str(folder / "libcudart.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, str(folder / "cudart.c")], check=True)
    return made


@pytest.fixture
def memory(library: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaMemory]:
    monkeypatch.setattr("mstar.transport.cuda.load_runtime", lambda _: load_runtime(library))
    with pretending():
        yield CudaMemory("cuda")


def test_tensors_go_through_memory_that_another_maps_by_its_handle(memory: CudaMemory) -> None:
    address = memory.allocate(1 << 20)
    handle = memory.export(address)
    assert len(handle) == HANDLE
    mapped = memory.map(handle)
    assert mapped == address
    given = torch.arange(5000, dtype=torch.bfloat16, device="cuda").reshape(50, 100)
    memory.write(address + 4096, given.T)
    found = memory.read(mapped + 4096, (100, 50), torch.bfloat16)
    assert found.device == CUDA
    assert torch.equal(found.cpu(), given.T.cpu())
    memory.unmap(mapped)
    memory.free(address)


def test_what_comes_over_the_host_goes_up(memory: CudaMemory) -> None:
    found = memory.upload(torch.arange(10))
    assert found.device == CUDA
    assert found.tolist() == list(range(10))


def test_a_refusal_has_the_runtimes_words_and_leaves_no_error_for_others_to_find(
    memory: CudaMemory, library: str
) -> None:
    with pytest.raises(Refused, match="cudaMalloc: out of memory"):
        memory.allocate(1 << 41)
    with pytest.raises(Refused, match="cudaIpcOpenMemHandle: invalid argument"):
        memory.map(bytes(HANDLE))
    assert load_runtime(library).cudaGetLastError() == 0


def test_where_torch_finds_no_memory_the_device_refuses(memory: CudaMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nand advice")

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(Refused, match=r"^CUDA out of memory. Tried to allocate 2 GiB.$"):
        memory.read(0, (1,), torch.float32)


def test_a_missing_runtime_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def missing(name: str) -> None:
        asked.append(name)
        raise OSError(name)

    monkeypatch.setattr("mstar.transport.cuda.load_runtime", missing)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    memory = CudaMemory("cuda")
    assert not asked
    with pretending(), pytest.raises(Refused, match=r"libcudart\.so\.13 can not be loaded"):
        memory.allocate(1)
    assert asked == ["libcudart.so.13", "libcudart.so"]
