"""The Realtime API over WebRTC, with the toy family behind it and an aiortc peer before it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import numpy as np
import pytest
from aiortc import RTCSessionDescription

from models.toy.language import tone_of
from server.events.session import MOST_WRITTEN
from tests.clients.conftest import ROOT, Serving
from tests.clients.rtc import FRAME, RATE, RtcClient, calling
from tests.clients.rtc_peer import PATIENCE

HALF_SECOND = 25


def post(url: str, body: bytes, kind: str, method: str = "POST") -> tuple[int, str]:
    request = urllib.request.Request(url, data=body, headers={"Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def calls_of(server: Serving) -> int:
    """WebRTC sessions that the server holds."""
    _, text = server.get("/metrics")
    found = re.search(r'^mstar_sessions\{protocol="webrtc"\} (\S+)$', text, re.MULTILINE)
    return round(float(found[1])) if found else 0


async def until_free(server: Serving, seconds: float) -> None:
    """Returns when the server holds no WebRTC session; TimeoutError if it does not come to that."""
    async with asyncio.timeout(seconds):
        while await asyncio.to_thread(calls_of, server):
            await moment()


async def moment() -> None:
    """Let the server do something else than answer how it is."""
    await asyncio.sleep(0.2)


def loudest(sound: np.ndarray) -> float:
    """Hz of the strongest tone."""
    spectrum = np.abs(np.fft.rfft(sound.astype(np.float64) * np.hanning(sound.size)))
    return float(spectrum.argmax()) * RATE / sound.size


async def test_a_spoken_question_is_answered_aloud(toy_server: Serving) -> None:
    async with calling(toy_server) as client:
        client.send("session.update", session={"type": "realtime", "audio": {"input": {"transcription": {}}}})
        await client.event("session.updated")
        await client.frames(HALF_SECOND)
        client.microphone.say("hello name")
        await client.event("output_audio_buffer.stopped")
        await client.frames(len(client.heard) + 10)
        kinds = [event["type"] for event in client.events]
        assert kinds[0] == "session.created"
        completed = await client.event("conversation.item.input_audio_transcription.completed")
        assert completed["transcript"] == "hello name"
        said = await client.event("response.output_audio_transcript.done")
        assert said["transcript"] == "you said hello name"
        assert "response.output_audio.delta" not in kinds
        assert client.place("response.content_part.added") < client.place("output_audio_buffer.started")
        assert client.place("response.done") < client.place("output_audio_buffer.stopped")
        assert client.place("response.output_audio.done") < client.place("response.done")
        sound = client.sound()
        loud = np.flatnonzero(np.abs(sound) > 1000)
        spoken = sound[loud[0] : loud[-1]]
        word = round(0.25 * RATE)
        assert spoken.size == pytest.approx(4 * word, abs=FRAME)
        for index, text in enumerate(said["transcript"].split()):
            middle = spoken[index * word + word // 5 : (index + 1) * word - word // 5]
            assert loudest(middle) == pytest.approx(tone_of(text), abs=15)


async def test_positions_of_the_answer_track_have_no_holes(toy_server: Serving) -> None:
    async with calling(toy_server) as client:
        await client.frames(10)
        client.send("conversation.item.create", item=message("count"))
        client.send("response.create")
        await client.event("output_audio_buffer.stopped")
        positions = np.array([pts for pts, _ in client.heard])
        lost = await packets_lost(client)
        steps = np.diff(positions)
        assert (steps == FRAME).sum() >= steps.size - lost


async def packets_lost(client: RtcClient) -> int:
    """What the receiver's own jitter buffer or the network has lost, at most."""
    report = await client.peer.getReceivers()[0].getStats()
    return sum(getattr(row, "packetsLost", 0) for row in report.values())


def message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


async def test_talking_over_the_answer_cuts_it_where_it_was_heard(toy_server: Serving) -> None:
    async with calling(toy_server) as client:
        await client.frames(10)
        client.send("conversation.item.create", item=message("long"))
        client.send("response.create")
        await client.event("output_audio_buffer.started")
        await client.frames(len(client.heard) + 2 * HALF_SECOND)
        before = len(client.heard)
        client.microphone.say("stop stop")
        cleared = await client.event("output_audio_buffer.cleared")
        truncated = await client.event("conversation.item.truncated")
        done = await client.event("response.done")
        at_clear = len(client.heard)
        assert done["response"]["id"] == cleared["response_id"]
        assert done["response"]["status"] == "cancelled"
        assert done["response"]["status_details"]["reason"] == "turn_detected"
        assert client.place("input_audio_buffer.speech_started") < client.place("response.done")
        assert client.place("response.done") < client.place("output_audio_buffer.cleared")
        # The server's count against what came here: started when the first frame left, cut when the last one had.
        sound = client.sound()
        begun = np.flatnonzero(np.abs(sound) > 1000)[0]
        heard_ms = (at_clear * FRAME - begun) / RATE * 1000
        assert truncated["audio_end_ms"] == pytest.approx(heard_ms, abs=250)
        assert truncated["audio_end_ms"] > (before * FRAME - begun) / RATE * 1000 - 250
        client.send("conversation.item.retrieve", item_id=truncated["item_id"])
        kept = (await client.event("conversation.item.retrieved"))["item"]["content"][0]["transcript"].split()
        assert abs(len(kept) - truncated["audio_end_ms"] / 250) <= 1
        await client.event("response.created", 2)
        assert "response.output_audio_transcript.delta" not in [
            event["type"]
            for event in client.events[client.place("output_audio_buffer.cleared") :]
            if event.get("response_id") == cleared["response_id"]
        ]


async def test_the_client_may_throw_away_what_is_played(toy_server: Serving) -> None:
    async with calling(toy_server) as client:
        await client.frames(10)
        client.send("conversation.item.create", item=message("count"))
        client.send("response.create")
        await client.event("output_audio_buffer.started")
        await client.event("response.done")  # everything is made, most of it not played
        client.send("output_audio_buffer.clear")
        await client.event("output_audio_buffer.cleared")
        truncated = await client.event("conversation.item.truncated")
        assert truncated["audio_end_ms"] < 3000  # of twelve words, 3 s
        mark = len(client.heard)
        await client.frames(mark + HALF_SECOND)
        tail = np.concatenate([pcm for _, pcm in client.heard[mark + 15 :]])  # past what the receiver holds
        assert np.abs(tail).max() < 200


async def test_wrong_events_are_answered_with_what_is_wrong(toy_server: Serving) -> None:
    async with calling(toy_server) as client:
        client.channel.send("{")
        client.channel.send(b"\xff\xfe")
        client.send("no.such.event", event_id="e1")
        client.send("input_audio_buffer.append", audio="AAAA", event_id="e2")
        errors = [(await client.event("error", count))["error"] for count in range(1, 5)]
        assert [error["code"] for error in errors] == ["invalid_json", "invalid_json", "invalid_value", "invalid_value"]
        assert [error["event_id"] for error in errors] == [None, None, "e1", "e2"]
        client.send("conversation.item.create", item=message("hello"))
        client.send("response.create")
        await client.event("output_audio_buffer.stopped")


async def test_traces_and_marks_come_to_those_who_ask(toy_server: Serving) -> None:
    async with calling(toy_server, "?events=ext") as client:
        await client.frames(HALF_SECOND)
        client.microphone.say("hello")
        marks = (await client.event("mstar.turn"))["marks"]
        assert {"speech_end", "endpoint", "first_token", "first_sample", "heard"} <= set(marks)
        rows = (await client.event("mstar.trace"))["records"]
        assert {row[3] for event in client.events if event["type"] == "mstar.trace" for row in event["records"]} >= {
            "vad"
        }
        assert all(len(row) >= 7 for row in rows)


def form(**parts: str) -> bytes:
    """A multipart body with the boundary `x`."""
    sections = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in parts.items()
    ]
    return ("".join(sections) + "--x--\r\n").encode()


FORM = "multipart/form-data; boundary=x"
SDP = "application/sdp"
SILENT = b"v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
DEEP_SESSION = '{"type": "realtime", "prompt": ' + "[" * 500 + "]" * 500 + "}"
LONG_SESSION = "x" * MOST_WRITTEN
WRONG_SESSION = '{"type": "realtime", "audio": {"input": 7}}'


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"", SDP, 400, "invalid_offer"),
        (b"v=0\r\nnonsense", SDP, 400, "invalid_offer"),
        (SILENT, SDP, 400, "invalid_offer"),
        (b"\xff\xfe", SDP, 400, "invalid_offer"),
        (SILENT, f"{SDP}; charset=nonsense", 400, "invalid_offer"),
        (b"a=x\r\n" * 60_000, SDP, 413, "body_too_large"),
        (form(sdp="a=x\r\n" * 60_000), FORM, 413, "body_too_large"),
        (form(sdp="v=0", session=LONG_SESSION + "x"), FORM, 413, "body_too_large"),
        (form(sdp="v=0", session=LONG_SESSION), FORM, 400, "invalid_json"),
        (b"{}", "application/json", 415, "unsupported_media_type"),
        (b"x", "multipart/form-data", 400, "invalid_form"),
        (b"x", FORM, 400, "invalid_form"),
        (form(sdp="v=0")[:-10], FORM, 400, "invalid_form"),
        (b"--x\r\n\r\nv=0\r\n--x--\r\n", FORM, 400, "invalid_form"),
        (form(session="{}"), FORM, 400, "missing_required_parameter"),
        (form(sdp="v=0", session=WRONG_SESSION), FORM, 400, "invalid_type"),
        (form(sdp="v=0", session="{"), FORM, 400, "invalid_json"),
        (form(sdp="v=0", session=DEEP_SESSION), FORM, 400, "invalid_value"),
    ],
)
def test_an_offer_that_is_none_is_refused_and_holds_nothing(
    toy_server: Serving, body: bytes, kind: str, status: int, code: str
) -> None:
    before = calls_of(toy_server)
    got, text = post(f"{toy_server.url}/v1/realtime/calls", body, kind)
    assert (got, json.loads(text)["error"]["code"]) == (status, code)
    assert calls_of(toy_server) == before


async def test_an_offer_may_bring_the_settings_of_its_session(toy_server: Serving) -> None:
    client = RtcClient(toy_server)
    try:
        await client.peer.setLocalDescription(await client.peer.createOffer())
        session = json.dumps({"type": "realtime", "instructions": "be brief"})
        body = form(sdp=client.peer.localDescription.sdp, session=session)
        url = f"{toy_server.url}/v1/realtime/calls"
        status, answer = await asyncio.to_thread(post, url, body, FORM)
        assert status == 201
        await client.peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        assert (await client.event("session.created"))["session"]["instructions"] == "be brief"
    finally:
        await client.close()


@pytest.mark.parametrize(("method", "suffix"), [("DELETE", ""), ("POST", "/hangup")])
async def test_a_call_can_be_hung_up_once(toy_server: Serving, method: str, suffix: str) -> None:
    async with calling(toy_server) as client:
        url = toy_server.url + client.location + suffix
        assert (await asyncio.to_thread(post, url, b"", "text/plain", method))[0] == 200
        assert (await asyncio.to_thread(post, url, b"", "text/plain", method))[0] == 404
        await until_free(toy_server, PATIENCE)


def descriptors(server: Serving) -> int:
    return len(list(Path(f"/proc/{server.process}/fd").iterdir()))


def threads(server: Serving) -> int:
    return len(list(Path(f"/proc/{server.process}/task").iterdir()))


async def test_calls_leave_nothing_behind(toy_server: Serving) -> None:
    async def one() -> None:
        async with calling(toy_server) as client:
            client.send("conversation.item.create", item=message("long"))
            client.send("response.create")
            await client.event("output_audio_buffer.started")

    await one()  # what is made once stays
    await until_free(toy_server, PATIENCE)
    before = descriptors(toy_server), threads(toy_server)
    for _ in range(5):
        await one()
    await until_free(toy_server, PATIENCE)
    assert descriptors(toy_server) <= before[0] + 2  # connections of /metrics come and go
    assert threads(toy_server) <= before[1] + 2  # the executor's threads are kept


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_peer_that_vanishes_is_freed(toy_server: Serving, how: signal.Signals) -> None:
    """Stock aiortc notices after half a minute."""
    await until_free(toy_server, PATIENCE)
    peer = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.clients.rtc_frozen", toy_server.url, cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        assert peer.stdout is not None
        async with asyncio.timeout(PATIENCE):
            assert await peer.stdout.readline() == b"connected\n"
        assert await asyncio.to_thread(calls_of, toy_server) == 1
        peer.send_signal(how)
        await until_free(toy_server, 20)
    finally:
        if peer.returncode is None:
            peer.kill()
        await peer.wait()
