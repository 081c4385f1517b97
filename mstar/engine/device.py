"""A step on a device that works behind its caller's back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def stepping(device: str) -> Iterator[None]:
    """What is done inside is done on `device`, and has been done when it ends. Nothing of a CPU's.

    Which device is the current one is a matter of each thread; streams and captured graphs are the current one's. And a
    step that ends with its work has the time that it took, which the scheduler goes by, and its outputs need no wait.
    """
    if not device.startswith("cuda"):
        yield
        return
    with torch.cuda.device(device):
        yield
        torch.cuda.current_stream(device).synchronize()
