"""A submodule that works call by call; the toy family's stateless nodes are such."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mstar.submodule import Call, Output, Outputs, Packed, Step


class PerCall:
    """`run(call) → outputs of that call`; names in `outputs` that it leaves out carry nothing."""

    def __init__(
        self,
        run: Callable[[Call], Mapping[str, Output]],
        outputs: tuple[str, ...],
        *,
        stop: Callable[[Call], bool] = lambda _: False,
        max_batch: int = 16,
    ) -> None:
        self.max_batch = max_batch
        self._stop = stop
        self._run = run
        self._outputs = outputs

    def collate(self, calls: Sequence[Call]) -> Packed:
        return Packed({})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        rows = [self._run(call) for call in step.calls]
        return {name: [row.get(name) for row in rows] for name in self._outputs}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return self._stop(call)
