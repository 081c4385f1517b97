"""Which batch is next: pure, over what could run now.

Order: firings that were passed over for too long, then requests whose listener is about to hear silence or whose
deadline is about to pass, then those whose first sound has not left yet, the earliest deadline first, then those with
the least sound ahead of their listener, then the one that waited longest. Within a request the node nearest to the
client goes first. The batch is everyone who can run the same (component, walk) as the most urgent one, most urgent
first, as far as it fits into a slice of time. Since long prompts are computed in pieces, a request that runs short is
served between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from mstar.worker.costs import StepCosts

SHORT = 0.4
"""Seconds of sound ahead of the listener below which a request goes before others' first sound."""
COMFORT = 1.0
"""Seconds of sound ahead of the listener beyond which requests count as equally comfortable."""
STARVED = 64
"""Steps that may be given to others while a firing could run; then it goes first, whatever it is for."""


class Pressure(msgspec.Struct, frozen=True):
    """How much a request presses. `kind`, less is more: 0 = runs short, 1 = nothing has left yet, 2 = comfortable."""

    kind: int
    ahead: float
    due: float = math.inf  # clock time (s) by which a planner's answer is wanted

    @property
    def key(self) -> tuple[int, float, float]:
        """In the order of urgency."""
        return (self.kind, -1.0 if self.kind == 1 else min(self.ahead, COMFORT), self.due)


def pressure(ahead: float, due: float = math.inf, now: float = 0.0) -> Pressure:
    """`ahead`: seconds of sound emitted and not yet heard, negative = nothing emitted yet; `due`: a deadline, if any.

    A deadline is what sound ahead is, once it is near. One that has passed presses no more than an early one.
    """
    if ahead < 0 and 0 < due - now < SHORT:
        return Pressure(0, due - now, due)
    return Pressure(1 if ahead < 0 else 0 if ahead < SHORT else 2, ahead, due)


class Runnable(msgspec.Struct, frozen=True):
    """A firing that could run now."""

    request: str
    partition: str
    node: int
    component: str
    walk: str
    pressing: Pressure
    depth: int
    served: int  # number of the last step its request took part in
    waited: int = 0  # steps given to others since it could run
    sliced: bool = False  # its batches are cut to a slice of time

    @property
    def urgency(self) -> tuple[bool, tuple[int, float, float], int, int]:
        """Smaller is more urgent."""
        return (self.waited < STARVED, self.pressing.key, -self.depth, self.served)


def next_batch(
    runnable: Sequence[Runnable], limits: Mapping[str, int], costs: StepCosts | None = None
) -> list[Runnable]:
    """At most `limits[component]` firings of one (component, walk), each of another request; [] if nothing can run."""
    if len(runnable) < 2:
        return list(runnable)
    first = min(runnable, key=lambda each: each.urgency)
    same = [each for each in runnable if each.component == first.component and each.walk == first.walk]
    batch: dict[str, Runnable] = {}
    for each in sorted(same, key=lambda each: each.urgency):
        batch.setdefault(each.request, each)
    most = min(limits[first.component], len(batch))
    if first.sliced and costs is not None and most > 1:
        most = costs.most(first.component, first.walk, most)
    return list(batch.values())[:most]
