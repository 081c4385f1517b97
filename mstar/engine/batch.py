"""What every engine does with a batch: split it, run it, keep one firing's fault from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar, cast

import msgspec

from mstar.engine.api import Completed, Failed, Firing, Outcome
from mstar.engine.states import StateStore
from mstar.errors import Rejected
from mstar.submodule import STATE, Call, Outputs, Submodule
from mstar.tensors import Output, Value

Arguments = ParamSpec("Arguments")
Item = TypeVar("Item")
Result = TypeVar("Result")


def attempt(work: Callable[Arguments, Result], *given: Arguments.args, **named: Arguments.kwargs) -> Result | Failed:
    """The work's result; whatever it raises becomes the failure's cause."""
    try:
        return work(*given, **named)
    except Rejected as fault:
        return Failed(fault.message, fault.code, fault.param or "")
    except Exception as fault:  # noqa: BLE001  a step runs code of families; what it raises ends requests, not the worker
        return Failed(f"{type(fault).__name__}: {fault}")


def isolate(
    items: Sequence[Item], execute: Callable[[Sequence[Item]], list[Outcome]], counters: Counter[str]
) -> list[Outcome]:
    """Execute the items together; if that fails, one by one. `execute` leaves nothing behind when it raises."""
    outcomes = attempt(execute, items)
    if not isinstance(outcomes, Failed):
        return outcomes
    if len(items) == 1:
        return [outcomes]
    counters["retries"] += len(items)
    return [outcome for item in items for outcome in isolate([item], execute, counters)]


def groups(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Consecutive groups of at most `size` items."""
    return [items[i : i + size] for i in range(0, len(items), size)]


def check_step(firings: Sequence[Firing]) -> None:
    """Raise ValueError unless the firings are of one (component, walk), each of another request."""
    if len(firings) == 1:
        return
    kinds = {(firing.component, firing.walk) for firing in firings}
    if len(kinds) > 1:
        raise ValueError(f"a step runs one component in one walk, got {sorted(kinds)}")
    requests = [firing.request for firing in firings]
    if len(set(requests)) < len(requests):
        raise ValueError(f"a request fires once a step, got {requests}")


def call_of(firing: Firing, states: StateStore) -> Call:
    """The firing as its submodule sees it."""
    return Call(
        firing.request,
        firing.walk,
        firing.inputs,
        firing.settings,
        firing.spans,
        states.get(firing),
        firing.iteration,
        firing.seed,
    )


class Ran(msgspec.Struct, frozen=True):
    """One call's share of a forward that went well."""

    outputs: Mapping[str, Output]  # `STATE` among them
    stop: bool


def conclude(submodule: Submodule, calls: Sequence[Call], outputs: Outputs) -> list[Ran | Failed]:
    """Each call's outputs and verdict; a verdict that raises fails its call alone.

    Raises ValueError when an output does not have one value per call.
    """
    for name, values in outputs.items():
        if len(values) != len(calls):
            raise ValueError(f"output {name!r} has {len(values)} values for {len(calls)} calls")
    by_call = [{name: values[i] for name, values in outputs.items()} for i in range(len(calls))]
    return [attempt(_ran, submodule, call, own) for call, own in zip(calls, by_call, strict=True)]


def _ran(submodule: Submodule, call: Call, outputs: Mapping[str, Output]) -> Ran:
    return Ran(outputs, bool(submodule.verdict(call, outputs)))


def commit_state(states: StateStore, firing: Firing, ran: Ran) -> Completed:
    """Commit the state that the call put out, if it did; what is left is for the graph."""
    outputs = ran.outputs
    if STATE in outputs:
        states.commit(firing, cast("Value", outputs[STATE]))
        outputs = {name: value for name, value in outputs.items() if name != STATE}
    return Completed(outputs, ran.stop)


def count(outcomes: Sequence[Outcome], counters: Counter[str]) -> None:
    """Add one step and its firings by outcome to the counters."""
    counters["steps"] += 1
    counters["firings"] += len(outcomes)
    for outcome in outcomes:
        if not isinstance(outcome, Completed):
            counters[type(outcome).__name__.lower()] += 1
