"""Which batch is next: the most urgent, whole batches of one kind, and nobody waits for ever."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mstar.worker.scheduler import COMFORT, Runnable, next_batch, pressure

LIMITS = {"a": 1, "b": 3, "c": 16}

runnables = st.builds(
    Runnable,
    request=st.sampled_from([f"r{n}" for n in range(6)]),
    partition=st.just("p"),
    node=st.integers(0, 3),
    component=st.sampled_from(sorted(LIMITS)),
    walk=st.sampled_from(["v", "w"]),
    pressing=st.sampled_from([-1.0, 0.0, 0.2, 0.9, 1.5, 2.0]).map(pressure),
    depth=st.integers(0, 5),
    served=st.integers(0, 20),
)


@given(st.lists(runnables, max_size=20))
def test_a_batch_is_the_most_urgent_and_all_who_can_run_with_it(able: list[Runnable]) -> None:
    batch = next_batch(able, LIMITS)
    if not able:
        assert batch == []
        return
    most = min(each.urgency for each in able)
    assert batch[0].urgency == most
    assert {(each.component, each.walk) for each in batch} == {(batch[0].component, batch[0].walk)}
    assert [each.urgency for each in batch] == sorted(each.urgency for each in batch)
    requests = [each.request for each in batch]
    assert len(set(requests)) == len(requests)
    same = {each.request for each in able if (each.component, each.walk) == (batch[0].component, batch[0].walk)}
    assert len(batch) == min(len(same), LIMITS[batch[0].component])


def runnable(request: str, ahead: float = 0.5, depth: int = 1, component: str = "a", served: int = 0) -> Runnable:
    return Runnable(request, "p", 0, component, "w", pressure(ahead), depth, served)


def test_the_order() -> None:
    first_sound = runnable("new", ahead=-1.0, depth=0, served=99)
    short = runnable("short", ahead=0.1, depth=0, served=99)
    deep = runnable("deep", ahead=0.95, depth=9, served=99)
    waited = runnable("waited", ahead=0.95, depth=1, served=1)
    served = runnable("served", ahead=0.95, depth=1, served=2)
    order = [short, first_sound, deep, waited, served]
    able = list(reversed(order))
    for wanted in order:
        [chosen] = next_batch(able, LIMITS)
        assert chosen == wanted
        able.remove(chosen)


def test_beyond_comfort_more_sound_is_no_reason_to_wait() -> None:
    rich, richer = runnable("rich", ahead=COMFORT, served=5), runnable("richer", ahead=9.0, served=4)
    assert next_batch([rich, richer], LIMITS) == [richer]


@given(st.integers(2, 12), st.integers(0, 1000))
def test_nobody_of_equal_urgency_starves(count: int, seed: int) -> None:
    draw = random.Random(seed)
    able = [runnable(f"r{n}", component=draw.choice("ab")) for n in range(count)]
    last = dict.fromkeys((each.request for each in able), 0)
    for step in range(1, 5 * count):
        draw.shuffle(able)
        for each in next_batch(able, LIMITS):
            able[able.index(each)] = replace(each, served=step)
            last[each.request] = step
        assert all(step - seen <= count for seen in last.values())
