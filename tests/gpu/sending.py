"""`python -m tests.gpu.sending DIRECTORY DEVICE`: a worker `a` that sends values to `b`, one a byte of its input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from mstar.bus.wire import Envelope, encode
from mstar.messages import Fired
from mstar.transport.choose import transport_of

VALUES = 4


def value(n: int, device: str) -> dict[str, Any]:
    """The n-th value: tensors of every kind that families send."""
    generator = torch.Generator().manual_seed(n)
    plain = torch.randn(1 << 20, generator=generator).to(device)
    return {
        "plain": plain,
        "half": plain[: 1 << 16].to(torch.bfloat16).reshape(256, 256),
        "turned": plain[: 1 << 16].reshape(256, 256).T,
        "every other": plain[::2],
        "whole": torch.arange(5000, device=device) + n,
        "small": torch.tensor([1.5, n], device=device),
        "empty": torch.zeros(0, 5, device=device),
        "host": torch.arange(5000),
    }


def main() -> None:
    directory, device = sys.argv[1:]
    end = transport_of("shared", "a", Path(directory), "127.0.0.1", device)
    for n in range(VALUES):
        frame = encode(Envelope("a", 1, Fired("s.1", 1, end.pack(value(n, device), "b", ("s.1", 1)))))
        counted = str(end.counters().get("device_leases", 0)).encode()
        for part in (frame, counted):
            sys.stdout.buffer.write(len(part).to_bytes(4, "little") + part)
        sys.stdout.flush()
        if sys.stdin.buffer.read(1) != b".":
            return


if __name__ == "__main__":
    main()
