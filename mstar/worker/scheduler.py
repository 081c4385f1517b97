"""Which batch is next: pure, over what could run now.

Order: requests whose listener is about to hear silence, then those whose first sound has not left yet, then those with
the least sound ahead of their listener, then the one that waited longest. Within a request the node nearest to the
client goes first. The batch is everyone who can run the same (component, walk) as the most urgent one, most urgent
first. Since long prompts are computed in pieces, a request that runs short is served between two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SHORT = 0.4
"""Seconds of sound ahead of the listener below which a request goes before others' first sound."""
COMFORT = 1.0
"""Seconds of sound ahead of the listener beyond which requests count as equally comfortable."""


@dataclass(frozen=True, slots=True)
class Runnable:
    """A firing that could run now."""

    request: str
    partition: str
    node: int
    component: str
    walk: str
    ahead: float  # seconds of sound emitted and not yet heard; negative = nothing emitted yet
    depth: int
    served: int  # number of the last step its request took part in

    @property
    def urgency(self) -> tuple[int, float, int, int]:
        """Smaller is more urgent."""
        kind = 1 if self.ahead < 0 else 0 if self.ahead < SHORT else 2
        return (kind, min(self.ahead, COMFORT), -self.depth, self.served)


def next_batch(runnable: Sequence[Runnable], limits: Mapping[str, int]) -> list[Runnable]:
    """At most `limits[component]` firings of one (component, walk), each of another request; [] if nothing can run."""
    if not runnable:
        return []
    first = min(runnable, key=lambda each: each.urgency)
    same = [each for each in runnable if each.component == first.component and each.walk == first.walk]
    batch: dict[str, Runnable] = {}
    for each in sorted(same, key=lambda each: each.urgency):
        batch.setdefault(each.request, each)
    return list(batch.values())[: limits[first.component]]
