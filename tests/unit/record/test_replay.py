"""A recording run again gives the same, or says where it does not; nonsense inside of one is refused."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.toy.model import CONVERSATION
from mstar.client.calls import Feed, Interrupt
from mstar.client.calls import packed as packed_call
from mstar.errors import Rejected
from mstar.messages import StartRequest
from mstar.placement import placement_of
from mstar.tensors import Value
from server.events.decode import decode
from server.events.server import (
    CachedTokens,
    InputTokens,
    ResponseAudio,
    ResponseDone,
    ResponseObject,
    ResponseOutput,
    Usage,
)
from server.events.session import AudioFormat
from server.record.entries import (
    Began,
    Called,
    Closed,
    Emitted,
    Entry,
    Heard,
    Opened,
    Played,
    Said,
    TaskEnded,
    Ticked,
    read,
)
from server.record.replay import Replay
from server.record.sums import sum_of, sum_of_commands
from server.session.commands import InterruptTask, Send, StartTask
from server.session.tasks import Ended
from tests.unit.record.made import BEGAN, local, replayed, taped, written

APART = placement_of(
    {
        "ranks": {"ear": {"threads": 1}, "main": {"threads": 1}},
        "families": {"toy": {"default": "main", "nodes": {"vad": "ear", "turn": "ear"}}},
    }
)


async def conversation() -> list[Entry]:
    """A question answered aloud, which the client interrupts; a second one, answered in writing."""
    core, kept = taped()
    async with local() as (system, advance):
        session = await system.client.open("toy", settings={"seed": 3}, session=BEGAN.session)
        requests: dict[int, Any] = {}
        now = BEGAN.at

        def carry_out(commands: list[Any]) -> None:
            for command in commands:
                match command:
                    case StartTask():
                        request = session.start(command.task, dict(command.inputs), command.settings, command.positions)
                        requests[command.key] = request
                    case InterruptTask(key=key):
                        requests[key].interrupt()

        def tell(**event: Any) -> None:
            nonlocal now
            now += 0.01
            advance(now)
            carry_out(core.client(decode(msgspec.json.encode(event)), now))

        def collect(most: int) -> None:
            """What the tasks gave, one after another, each a millisecond later; at most so many."""
            nonlocal now
            system.run()
            for key, request in list(requests.items()):
                for event in request.drain()[:most]:
                    now += 0.001
                    if hasattr(event, "output"):
                        carry_out(core.emission(key, event.output, event.index, event.value, now))
                    else:
                        carry_out(core.ended(key, Ended(event.status, event.code, event.cause), now))
                        del requests[key]
            now += 0.1
            carry_out(core.tick(now))

        for text, most, kind in (("count", 12, "audio"), ("hello", 10**6, "text")):
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
            tell(type="conversation.item.create", item=item)
            tell(type="response.create", response={"output_modalities": [kind]})
            collect(most)
            if text == "count":
                tell(type="response.cancel")
        collect(10**6)
        core.close(now)
        await session.close()
    return kept


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return asyncio.run(conversation())


@pytest.mark.parametrize("placement", [None, APART], ids=["one rank", "ear apart"])
async def test_equal_on_a_manual_clock_whatever_the_placement(
    tmp_path: Path, entries: list[Entry], placement: Any
) -> None:
    outcome = await replayed(written(tmp_path / "file", entries), placement)
    assert outcome.difference == ""
    assert outcome.steps == len(entries) - 2  # without beginning and end
    assert outcome.lines[-1] == ("assistant", "you said hello")
    assert all(outcome.samples(response) for response in outcome.sound)


def changed(entries: list[Entry], kind: type, **fields: Any) -> list[Entry]:
    """The last entry of a kind with other fields."""
    found = max(number for number, entry in enumerate(entries) if type(entry) is kind)
    other = msgspec.structs.replace(entries[found], **fields)
    return [*entries[:found], other, *entries[found + 1 :]]


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        (Emitted, {"sum": 1, "shown": "something else"}, "was something else, is "),
        (Emitted, {"index": 99}, "[99] never came, the task was done"),
        (Emitted, {"out": 1}, "the server does something else"),
        (Emitted, {"key": 77}, "task 77 was not started"),
        (TaskEnded, {"status": "failed", "code": "node_failed"}, "is done"),
        (Said, {"out": 1}, "the server does something else"),
    ],
)
async def test_a_difference_is_told_where_it_is(
    tmp_path: Path, entries: list[Entry], kind: type, fields: dict[str, Any], says: str
) -> None:
    outcome = await replayed(written(tmp_path / "file", changed(entries, kind, **fields)))
    assert outcome.difference.startswith("step ")
    assert says in outcome.difference


@pytest.mark.parametrize("code", ["", "worker_lost"])
async def test_a_difference_behind_the_loss_of_a_worker_says_so(
    tmp_path: Path, entries: list[Entry], code: str
) -> None:
    kept = list(entries)
    at, end = next((at, entry) for at, entry in enumerate(kept) if isinstance(entry, TaskEnded))  # interrupted before
    kept[at] = msgspec.structs.replace(end, status="failed", code=code)
    at, value = next((at, entry) for at, entry in reversed(list(enumerate(kept))) if isinstance(entry, Emitted))
    kept[at] = msgspec.structs.replace(value, sum=1)
    difference = (await replayed(written(tmp_path / "file", kept))).difference
    assert " was " in difference
    assert ("a worker was lost before" in difference) is bool(code)


async def test_what_was_on_its_way_to_nobody_need_not_come_again(tmp_path: Path, entries: list[Entry]) -> None:
    cancelled = next(at for at, entry in enumerate(entries) if isinstance(entry, Said) and b"cancel" in entry.event)
    moment = entries[cancelled].at  # type: ignore[union-attr]
    late = [Emitted(moment, 0, output, 999, 7, "", 0) for output in ("audio", "usage")]
    path = written(tmp_path / "file", [*entries[: cancelled + 1], *late, *entries[cancelled + 1 :]])
    assert (await replayed(path)).difference == ""


async def test_what_came_from_outside_is_handed_in_as_it_was(tmp_path: Path, entries: list[Entry]) -> None:
    """A lost worker does not get lost again."""
    at = next(number for number, entry in enumerate(entries) if isinstance(entry, TaskEnded) and entry.status == "done")
    lost = msgspec.structs.replace(entries[at], status="failed", code="worker_lost", cause="gone")
    outcome = await replayed(written(tmp_path / "file", [*entries[:at], lost]))
    assert "the end of" in outcome.difference  # the session's answer to it is another one, but the task is not at fault


STEPS = st.one_of(
    st.builds(Said, at=st.floats(99, 200), event=st.binary(max_size=40), out=st.just(0)),
    st.builds(Heard, at=st.floats(99, 200), position=st.integers(0, 9), pcm=st.binary(max_size=64), out=st.just(0)),
    st.builds(Emitted, at=st.floats(99, 200), key=st.integers(-1, 3), output=st.text(max_size=5),
              index=st.integers(-1, 3), sum=st.integers(0, 9), shown=st.text(max_size=5), out=st.just(0)),
    st.builds(TaskEnded, at=st.floats(99, 200), key=st.integers(-1, 3), status=st.text(max_size=5),
              code=st.text(max_size=5), cause=st.text(max_size=5), out=st.just(0)),
    st.builds(Played, at=st.floats(99, 200), response=st.text(max_size=5), samples=st.integers(-5, 5), out=st.just(0)),
    st.builds(Ticked, at=st.floats(99, 200), out=st.just(0)),
)  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    nonsense=st.lists(STEPS, max_size=4), began=st.sampled_from([{}, {"options": {"seconds": "x"}}, {"patch": b"{"}])
)
def test_nonsense_in_a_recording_that_is_whole_is_refused_or_told(
    tmp_path: Path, entries: list[Entry], nonsense: list[Entry], began: dict[str, Any]
) -> None:
    first = msgspec.structs.replace(entries[0], **began)
    path = written(tmp_path / "file", [first, *nonsense, Closed(300.0)])
    with contextlib.suppress(Rejected):  # which says what is wrong; anything else would be our fault
        asyncio.run(replayed(path))


CALLS = st.one_of(
    st.binary(max_size=30),
    st.builds(
        lambda name, text: packed_call(Feed("rec-1", name, "written", 0, text)),
        st.text(max_size=8),
        st.text(max_size=5),
    ),
    st.builds(lambda name: packed_call(Interrupt(name)), st.text(max_size=8)),
    st.builds(
        lambda task, inputs: packed_call(StartRequest("rec-1", "rec-1.0", task, inputs)),
        st.sampled_from(["speak", "nothing"]),
        st.dictionaries(st.text(max_size=5), st.integers(-(2**63), 2**63), max_size=1),
    ),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALLS, max_size=4))
def test_nonsense_among_calls_is_refused_or_told(tmp_path: Path, calls: list[bytes]) -> None:
    opened = Opened(BEGAN.session, "openai", "toy", {}, {}, 100.0)
    path = written(tmp_path / "file", [opened, *(Called(100.0, call) for call in calls), Closed(300.0)])
    with contextlib.suppress(Rejected):
        asyncio.run(replayed(path))


def told_of(prompt: int, cached: int) -> int:
    """Checksum of the end of a response that has used so many tokens."""
    details = InputTokens(text_tokens=prompt, cached_tokens=cached, cached_tokens_details=CachedTokens(cached))
    output = ResponseAudio(ResponseOutput(AudioFormat("audio/pcm"), "default"))
    response = ResponseObject(
        object="realtime.response",
        id="resp_1",
        status="completed",
        status_details=None,
        output=(),
        conversation_id=None,
        output_modalities=("text",),
        max_output_tokens="inf",
        audio=output,
        usage=Usage(input_tokens=prompt, input_token_details=details),
        metadata=None,
    )
    return sum_of_commands([Send(ResponseDone(response=response))])


def test_checksums_see_what_matters_and_not_what_timing_decides(entries: list[Entry]) -> None:
    usage: dict[str, Value] = {"prompt": 5, "reused": 3, "generated": 2, "reason": "stop"}
    assert sum_of(usage) == sum_of({**usage, "reused": 0})
    assert sum_of(usage) != sum_of({**usage, "generated": 3})
    assert sum_of({"reused": 3}) != sum_of({"reused": 0})  # of something else
    assert sum_of({"energy": 1.5, "elapsed_ms": 3.0}) == sum_of({"energy": 1.5, "elapsed_ms": 7.0})
    assert sum_of_commands([InterruptTask(1, 5)]) != sum_of_commands([InterruptTask(1, 6)])
    assert told_of(prompt=5, cached=3) == told_of(prompt=5, cached=0) != told_of(prompt=6, cached=3)


def test_a_recording_names_its_inputs(tmp_path: Path, entries: list[Entry]) -> None:
    recording = read(written(tmp_path / "file", entries))
    assert isinstance(recording.began, Began)
    said = [msgspec.json.decode(step.event)["type"] for step in recording.steps if isinstance(step, Said)]
    assert said.count("response.create") == 2
    assert recording.began.session_settings == {"seed": 3}
    assert {step.output for step in recording.steps if isinstance(step, Emitted)} >= {"text", "audio", "usage"}
    assert Replay(recording, CONVERSATION, None).outcome.steps == 0  # type: ignore[arg-type]
