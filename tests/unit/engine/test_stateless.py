from collections.abc import Mapping, Sequence

import numpy as np
import torch

from mstar.engine.api import Completed, Failed, Firing
from mstar.engine.stateless import StatelessEngine
from mstar.submodule import STATE, Call, Outputs, Packed, Step
from mstar.tensors import Output


class RunningSum:
    """Adds its input `x` to its state; faulty where x is negative."""

    max_batch = 3

    def __init__(self) -> None:
        self.batches: list[int] = []

    def collate(self, calls: Sequence[Call]) -> Packed:
        numbers = [[call.state or 0, call.inputs["x"]] for call in calls]
        return Packed({"numbers": torch.tensor(numbers)})

    def forward(self, packed: Packed, step: Step) -> Outputs:
        assert step.attention is None
        self.batches.append(len(step.calls))
        if bool((packed.tensors["numbers"][:, 1] < 0).any()):
            raise ArithmeticError("negative")
        sums = packed.tensors["numbers"].sum(-1).tolist()
        return {"sum": sums, "odd": [s if s % 2 else None for s in sums], STATE: sums}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        if outputs["sum"] == 99:
            raise ArithmeticError("99")
        return bool(np.asarray(outputs["sum"]) >= 10)


def fire(request: str, x: int, session: str = "s", component: str = "sum") -> Firing:
    return Firing(session, request, component, "walk", {"x": x})


def sums(engine: StatelessEngine, *firings: Firing) -> list[Output]:
    outcomes = engine.step(firings)
    return [
        o.outputs["sum"] if isinstance(o, Completed) else o.cause for o in outcomes if isinstance(o, Completed | Failed)
    ]


def test_state_is_of_the_request_and_ends_with_it() -> None:
    engine = StatelessEngine({"sum": RunningSum()})
    assert sums(engine, fire("a", 1), fire("b", 5)) == [1, 5]
    assert sums(engine, fire("b", 1), fire("a", 1)) == [6, 2]
    assert engine.census() == {"states": 2}
    engine.end_request("a")
    assert sums(engine, fire("a", 1)) == [1]
    engine.end_session("s")
    assert engine.census() == {"states": 0}


def test_state_of_a_session_outlives_requests() -> None:
    engine = StatelessEngine({"sum": RunningSum(), "own": RunningSum()}, session_state=["sum"])
    sums(engine, fire("a", 1))
    sums(engine, fire("a", 1, component="own"))
    engine.end_request("a")
    assert sums(engine, fire("b", 1)) == [2]
    assert sums(engine, fire("b", 1, component="own")) == [1]
    assert sums(engine, fire("c", 1, session="other")) == [1]
    engine.end_session("s")
    assert engine.census() == {"states": 1}


def test_state_is_not_an_output_and_verdicts_stop() -> None:
    (outcome,) = StatelessEngine({"sum": RunningSum()}).step([fire("a", 12)])
    assert outcome == Completed({"sum": 12, "odd": None}, stop=True)


def test_the_guilty_fail_alone_and_commit_nothing() -> None:
    submodule = RunningSum()
    engine = StatelessEngine({"sum": submodule})
    sums(engine, fire("a", 1), fire("b", 1))
    assert sums(engine, fire("a", 1), fire("b", -1), fire("c", 7)) == [2, "ArithmeticError: negative", 7]
    assert submodule.batches == [2, 3, 1, 1, 1]
    assert sums(engine, fire("b", 1)) == [2]
    assert engine.counters() == {"steps": 3, "firings": 6, "failed": 1, "retries": 3}


def test_a_failing_verdict_is_its_requests_own() -> None:
    engine = StatelessEngine({"sum": RunningSum()})
    assert sums(engine, fire("a", 99), fire("b", 1)) == ["ArithmeticError: 99", 1]
    assert engine.census() == {"states": 1}


def test_batches_are_cut_to_max_batch() -> None:
    submodule = RunningSum()
    engine = StatelessEngine({"sum": submodule})
    assert sums(engine, *(fire(str(i), i) for i in range(7))) == list(range(7))
    assert submodule.batches == [3, 3, 1]
    assert engine.step([]) == []


def test_an_output_without_one_value_per_call_is_an_error() -> None:
    class Short(RunningSum):
        def forward(self, packed: Packed, step: Step) -> Outputs:
            return {"sum": [1] * (len(step.calls) + 1)}

    (outcome,) = StatelessEngine({"sum": Short()}).step([fire("a", 1)])
    assert outcome == Failed("ValueError: output 'sum' has 2 values for 1 calls")
