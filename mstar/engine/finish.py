"""The end of a step on a device that works behind its caller's back."""

from __future__ import annotations

import torch


def finish(device: str) -> None:
    """Wait until the device has done what this thread gave it; a CPU has.

    So a step has the time that it took, which the scheduler goes by, and what it put out can be read without a wait.
    """
    if device.startswith("cuda"):
        torch.cuda.current_stream(device).synchronize()
