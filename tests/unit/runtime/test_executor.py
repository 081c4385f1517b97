"""Jobs run in order on one thread; results come back where they are collected, and so does a job's error."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from mstar.worker.executor import ComputeThread, Executor, InlineExecutor, Job


@pytest.fixture
def thread() -> Iterator[ComputeThread]:
    running = ComputeThread("compute")
    yield running
    running.close()
    assert "compute" not in {each.name for each in threading.enumerate()}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(running.descriptor)


def wait(thread: ComputeThread) -> None:
    assert select.select([thread.descriptor], [], [], 30)[0]


def raising() -> Any:
    raise RuntimeError("broken")


def test_results_come_in_order_on_the_caller_s_thread(thread: ComputeThread) -> None:
    got: list[tuple[Any, str]] = []

    def done(result: Any) -> None:
        got.append((result, threading.current_thread().name))

    def job(number: int) -> tuple[int, str]:
        return number, threading.current_thread().name

    for number in range(100):
        thread.submit(partial(job, number), done)
    while len(got) < 100:
        wait(thread)
        thread.hush()
        thread.collect()
    here = threading.current_thread().name
    assert got == [((number, "compute"), here) for number in range(100)]


def test_nothing_finished_is_nothing_to_collect(thread: ComputeThread) -> None:
    thread.collect()
    thread.submit(lambda: None)


@pytest.mark.parametrize("wanted", [None, lambda result: None])
def test_an_error_is_raised_where_results_are_collected(
    thread: ComputeThread, wanted: Callable[[Any], None] | None
) -> None:
    thread.submit(raising, wanted)
    wait(thread)
    with pytest.raises(RuntimeError, match="broken"):
        thread.collect()


def test_the_thread_goes_on_by_itself_and_wakes_who_has_to_know(thread: ComputeThread) -> None:
    got: list[tuple[Any, str]] = []
    left = 100

    def done(result: Any) -> None:
        got.append((result, threading.current_thread().name))

    def go_on() -> bool:
        nonlocal left
        thread.collect()
        left -= 1
        if left:
            thread.submit(lambda: left, done)
        return left > 0

    thread.relieve_with(go_on)
    thread.submit(lambda: left, done)
    wait(thread)
    assert got == [(number, "compute") for number in range(100, 0, -1)]
    thread.hush()
    assert not select.select([thread.descriptor], [], [], 0)[0]
    thread.hush()


@pytest.mark.parametrize("job", [raising, lambda: None])
def test_an_error_of_who_goes_on_is_raised_where_results_are_collected(thread: ComputeThread, job: Job) -> None:
    def go_on() -> bool:
        thread.collect()
        return bool(raising())

    thread.relieve_with(go_on)
    thread.submit(job, lambda _: None)
    wait(thread)
    with pytest.raises(RuntimeError, match="broken"):
        thread.collect()


def test_inline_jobs_run_at_once_and_report_when_collected() -> None:
    inline: Executor = InlineExecutor()
    seen: list[str] = []
    inline.submit(lambda: seen.append("ran"), lambda _: seen.append("told"))
    assert seen == ["ran"]
    inline.collect()
    assert seen == ["ran", "told"]
    with pytest.raises(RuntimeError, match="broken"):
        inline.submit(raising)
