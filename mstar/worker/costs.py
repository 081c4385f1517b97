"""What steps cost, as they were measured: how many firings of a kind fit into a slice of time (pure)."""

from __future__ import annotations

SLICE = 0.040
"""Seconds of work that a batch of an encoder or vocoder may hold: what a listener who runs short then waits at most."""
NEWEST = 0.25
"""Weight of the newest measurement in a running mean."""


class StepCosts:
    """Running means of step times by (component, walk) and batch size, in seconds."""

    def __init__(self) -> None:
        self._means: dict[tuple[str, str], dict[int, float]] = {}

    def observe(self, component: str, walk: str, batch: int, seconds: float) -> None:
        """A step of `batch` firings took this long."""
        means = self._means.setdefault((component, walk), {})
        before = means.get(batch)
        means[batch] = seconds if before is None else before + NEWEST * (seconds - before)

    def estimate(self, component: str, walk: str, batch: int) -> float | None:
        """What a batch will take; None before anything was measured.

        As measured at this size; or in proportion to what a smaller batch took if that is less, so that one slow step
        is not held against its size for ever; or in proportion to a larger one where nothing else is known.
        """
        means = self._means.get((component, walk))
        if not means:
            return None
        shares = [mean * batch / size for size, mean in means.items() if size <= batch]
        return min(shares) if shares else min(mean * batch / size for size, mean in means.items())

    def most(self, component: str, walk: str, limit: int) -> int:
        """The largest batch up to `limit` that is done in a `SLICE`, at least 1; `limit` if nothing is known."""
        if self.estimate(component, walk, 1) is None:
            return limit
        for batch in range(limit, 1, -1):
            estimate = self.estimate(component, walk, batch)
            if estimate is not None and estimate <= SLICE:
                return batch
        return 1
