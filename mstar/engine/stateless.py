"""The engine of components without a K/V cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import torch

from mstar.engine.api import Deferred, Failed, Firing, Outcome
from mstar.engine.batch import call_of, check_step, commit_state, conclude, count, groups, isolate
from mstar.engine.device import stepping
from mstar.engine.kv.image import RequestImage
from mstar.engine.states import StateStore
from mstar.submodule import Step, Submodule
from mstar.tensors import Value


class StatelessEngine:
    """Runs submodules that keep nothing but state values (see `mstar.engine.api.Engine`).

    `session_state` names the components whose state belongs to the session; that of all others ends with its request.
    """

    def __init__(
        self, submodules: Mapping[str, Submodule], *, session_state: Collection[str] = (), device: str = "cpu"
    ) -> None:
        self._submodules = dict(submodules)
        self._device = device
        self._states = StateStore(session_state)
        self._counters: Counter[str] = Counter(steps=0, firings=0, failed=0, retries=0)

    def step(self, firings: Sequence[Firing]) -> list[Outcome]:
        if not firings:
            return []
        check_step(firings)
        submodule = self._submodules[firings[0].component]
        outcomes: list[Outcome] = []
        with torch.inference_mode(), stepping(self._device):
            for group in groups(firings, submodule.max_batch):
                outcomes += isolate(group, partial(self._execute, submodule), self._counters)
        count(outcomes, self._counters)
        return outcomes

    def end_request(self, request: str) -> None:
        self._states.end_request(request)

    def end_session(self, session: str) -> None:
        self._states.end_session(session)

    def give(self, request: str, component: str) -> Value:
        return {"session": self._states.session(request), "state": self._states.give(request, component)}

    def take(self, request: str, component: str, image: Value) -> Deferred | None:
        given = RequestImage.of(image)
        self._states.take(given.session, request, component, given.state)
        return None

    def preempt(self, request: str, component: str) -> int:  # noqa: ARG002 - nothing here can be dropped
        return 0

    def census(self) -> Mapping[str, int]:
        return {"states": len(self._states)}

    def counters(self) -> Mapping[str, int]:
        return dict(self._counters)

    def _execute(self, submodule: Submodule, firings: Sequence[Firing]) -> list[Outcome]:
        calls = [call_of(firing, self._states) for firing in firings]
        outputs = submodule.forward(submodule.collate(calls), Step(calls))
        return [
            result if isinstance(result, Failed) else commit_state(self._states, firing, result)
            for firing, result in zip(firings, conclude(submodule, calls, outputs), strict=True)
        ]
