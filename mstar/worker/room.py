"""Whether a rank's device is there, and its K/V memory fits beside its weights: looked at before anything is taken."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

_MIB = 2**20
_GROUP = Path("/sys/fs/cgroup")


def missing_device(device: str) -> str | None:
    """Why the device can not be had, None if it can."""
    if not device.startswith("cuda"):
        return None
    if not torch.cuda.is_available():
        return "this host has no CUDA device that torch can use"
    count = torch.cuda.device_count()
    index = torch.device(device).index or 0
    return None if index < count else f"this host has {count} CUDA device{'s' * (count != 1)}"


def available_bytes(device: str) -> int:
    """What the device can still give: of a GPU, of the host, or of the group of processes whose memory is limited."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    return min(_host(), _group())


def shortage(needed: Mapping[str, int], available: int) -> tuple[str, str] | None:
    """The component that needs most and a sentence with the numbers, if what is needed is more than there is."""
    total = sum(needed.values())
    if total <= available:
        return None
    most = max(needed, key=lambda name: needed[name])
    parts = ", ".join(f"{name} {size // _MIB}" for name, size in sorted(needed.items()))
    return most, f"K/V memory needs {total // _MIB} MiB ({parts}), {available // _MIB} MiB are left beside the weights"


def _host() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group() -> int:
    try:
        most, used = (_GROUP / "memory.max").read_text(), (_GROUP / "memory.current").read_text()
    except OSError:
        return 2**63
    return 2**63 if most.strip() == "max" else max(0, int(most) - int(used))
