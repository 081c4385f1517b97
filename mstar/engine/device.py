"""A step on a device that works behind its caller's back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

_NOTHING = nullcontext()


def stepping(device: str) -> AbstractContextManager[None]:
    """What is done inside is done on `device`, and has been done when it ends. Nothing of a CPU's.

    Which device is the current one is a matter of each thread; streams and captured graphs are the current one's. And a
    step that ends with its work has the time that it took, which the scheduler goes by, and its outputs need no wait.
    """
    return _on_cuda(device) if device.startswith("cuda") else _NOTHING


@contextmanager
def _on_cuda(device: str) -> Iterator[None]:
    with torch.cuda.device(device):
        yield
        torch.cuda.current_stream(device).synchronize()
