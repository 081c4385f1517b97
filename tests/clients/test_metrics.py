"""Every number of `/metrics` moves when the thing happens that it counts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.clients.conftest import Serving
from tests.clients.raw import Raw, connected
from tests.clients.tones import silence, spoken
from tests.unit.server.metric_names import documented

ROBOTS = {"mstar_chunks_total", "mstar_frames_total", "mstar_frame_age_seconds"}
"""What only robots move: `test_robot_session.py`."""
FAULTS = {"mstar_sessions_failed_total", "mstar_runtime_silent_total", "mstar_underruns_total"}
"""What only faults move: `test_metrics.py` of the units."""
LOSSES = {"mstar_worker_restarts_total", "mstar_worker_recovery_seconds", "mstar_lost_requests_total"}
"""What only lost workers move: `test_failure_server.py`."""


class Numbers:
    """One scrape: samples by name, with their labels."""

    def __init__(self, text: str) -> None:
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def __call__(self, name: str, /, **labels: str) -> float:
        """Sum of the samples of that name that have these labels."""
        return sum(
            sample.value for sample in self.samples if sample.name == name and labels.items() <= sample.labels.items()
        )


def scrape(server: Serving) -> Numbers:
    status, text = server.get("/metrics")
    assert status == 200
    return Numbers(text)


async def settled(server: Serving, wanted: Mapping[str, float]) -> Numbers:
    """Scrape until these numbers are reached (what ends, ends a moment after its client has gone)."""
    while True:
        now = await asyncio.to_thread(scrape, server)
        if all(now(name) >= least for name, least in wanted.items()):
            return now
        await asyncio.sleep(0.05)


async def interrupted(raw: Raw) -> None:
    """An answer, and an interruption of it by voice."""
    await raw.next()
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "count"}]}
    await raw.send({"type": "conversation.item.create", "item": item})
    await raw.send({"type": "response.create"})
    for _ in range(3):
        await raw.until("response.output_audio.delta")
    sound = base64.b64encode(spoken("again") + silence(0.8)).decode()
    await raw.send({"type": "input_audio_buffer.append", "audio": sound})
    assert (await raw.until("response.done"))["response"]["status_details"]["reason"] == "turn_detected"
    assert (await raw.until("response.done"))["response"]["status"] == "completed"


FREED = "mstar_disconnect_to_free_seconds_count"
GROWN: list[tuple[str, int, dict[str, str]]] = [
    ("mstar_refused_total", 1, {"code": "model_not_found"}),
    ("mstar_errors_total", 1, {}),
    ("mstar_turns_total", 1, {}),
    ("mstar_speech_started_total", 1, {}),
    ("mstar_responses_total", 1, {"status": "cancelled"}),
    ("mstar_responses_total", 1, {"status": "completed"}),
    ("mstar_barge_ins_total", 1, {}),
    ("mstar_barge_in_seconds_count", 1, {}),
    ("mstar_first_audio_seconds_count", 1, {}),
    ("mstar_first_chunk_seconds_count", 1, {"task": "speak", "output": "audio"}),
    ("mstar_first_chunk_seconds_count", 1, {"task": "answer_speech", "output": "audio"}),
    ("mstar_playout_slack_seconds_count", 2, {}),
    (FREED, 2, {}),
    ("mstar_loop_lag_seconds_count", 1, {}),
    ("mstar_runtime", 10, {"name": "firings", "process": "worker.main"}),
    ("mstar_steps_total", 10, {"process": "worker.main"}),
    ("mstar_batch_size_count", 10, {"process": "worker.main", "family": "toy", "component": "LM"}),
    ("mstar_node_seconds_count", 1, {"family": "toy", "component": "vocoder", "node": "vocoder"}),
]
"""What the conversation, the speech and the two mistakes of the test move, and by how much at least."""


async def test_every_number_moves(toy_server: Serving) -> None:
    before = scrape(toy_server)
    async with connected(toy_server, "/v1/realtime?events=ext") as raw:
        await interrupted(raw)
        await raw.send("nonsense")
        await raw.until("error")
        during = scrape(toy_server)
    async with aiohttp.ClientSession() as http:
        wanted = {"model": "toy", "input": "hello there", "voice": "alloy", "response_format": "pcm"}
        async with http.post(f"{toy_server.url}/v1/audio/speech", json=wanted) as answer:
            assert answer.status == 200
            assert await answer.read()
    assert toy_server.get("/v1/graph/none")[0] == 404
    lag = "mstar_loop_lag_seconds_count"
    after = await settled(toy_server, {FREED: before(FREED) + 2, lag: before(lag) + 1})
    for name, by, labels in GROWN:
        assert after(name, **labels) >= before(name, **labels) + by, (name, labels)
    moved = {name.removesuffix("_count") for name, _, _ in GROWN} | _of_now(before, during, after)
    assert moved | ROBOTS | FAULTS | LOSSES == {name for name, _, _ in documented()}
    assert after("mstar_node_seconds_count") == after("mstar_batch_size_count") <= after("mstar_steps_total")
    assert after("mstar_batch_size_sum") == after("mstar_runtime", name="firings")


def _of_now(before: Numbers, during: Numbers, after: Numbers) -> set[str]:
    """Check what goes up and down with the sessions → its names."""
    assert during("mstar_sessions", protocol="websocket") == before("mstar_sessions", protocol="websocket") + 1
    assert after("mstar_sessions", protocol="websocket") == before("mstar_sessions", protocol="websocket")
    assert during("mstar_held", process="conductor", name="sessions") >= 1
    assert during("mstar_event_loop_tasks") > 0
    free, held, idle = (during("mstar_kv_pages", state=state) for state in ("free", "held", "idle"))
    assert idle > 0  # the conversation's cache
    assert free + held + idle == after("mstar_kv_pages", state="free")
    assert {sample.labels["stream"] for sample in during.samples if sample.name == "mstar_stream_items"} >= {"mic"}
    assert "mstar_stream_dropped_total" in {sample.name for sample in during.samples}  # by value: `test_seeing.py`
    assert after("mstar_worker_ready", process="worker.main") == 1
    return {
        "mstar_sessions",
        "mstar_held",
        "mstar_event_loop_tasks",
        "mstar_kv_pages",
        "mstar_stream_items",
        "mstar_stream_dropped_total",
        "mstar_worker_ready",
    }
