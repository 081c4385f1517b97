"""What is done under private names of aiortc and aioice does what it is meant to."""

from __future__ import annotations

import asyncio
import queue
import socket
from typing import Any

import pytest
from aiortc import RTCDataChannel, RTCPeerConnection, RTCRtpReceiver
from aiortc.rtcrtpparameters import RTCRtpCodecParameters
from aiortc.rtcrtpreceiver import RemoteStreamTrack
from aiortc.rtp import RtpPacket
from av import AudioFrame

from server.webrtc import patches
from server.webrtc.addresses import parse

PCMU = RTCRtpCodecParameters(mimeType="audio/PCMU", clockRate=8000, channels=1, payloadType=0)
WRAP = 2**16


class Wire:
    """As much of a DTLS transport as a receiver needs that is not started."""

    state = "new"


def receiver_of(*, patched: bool) -> RTCRtpReceiver:
    """A receiver whose decoder queue nobody empties."""
    receiver: Any = RTCRtpReceiver("audio", Wire())  # type: ignore[arg-type]  # stands in for a transport
    receiver._track = RemoteStreamTrack("audio")
    if patched:
        patches.pass_through(receiver)
    getattr(receiver, patches._CODECS)[0] = PCMU
    receiver._RTCRtpReceiver__decoder_thread = "not started"
    found: RTCRtpReceiver = receiver
    return found


def packet(number: int, first: int = 0) -> RtpPacket:
    """20 ms of G.711, number `number` of the sender; its sequence numbers begin with `first`."""
    made = RtpPacket(payload_type=0, sequence_number=(first + number) % WRAP)
    made.timestamp = number * 160
    made.ssrc = 7
    made.payload = bytes(160)
    return made


async def decoded(receiver: RTCRtpReceiver, packets: list[RtpPacket]) -> list[tuple[int, int]]:
    """(number of the newest packet, number of the frame) for every frame that went to the decoder."""
    waiting: queue.Queue[Any] = getattr(receiver, patches._DECODER)
    out = []
    for each in packets:
        await receiver._handle_rtp_packet(each, 0)
        while not waiting.empty():
            codec, frame = waiting.get()
            assert codec is PCMU
            out.append((each.timestamp // 160, frame.timestamp // 160))
    return out


async def test_every_packet_is_decoded_when_it_comes() -> None:
    out = await decoded(receiver_of(patched=True), [packet(i) for i in range(100)])
    assert out == [(i, i) for i in range(100)]


@pytest.mark.parametrize("first", [0, WRAP - 30])
@pytest.mark.parametrize("lost", [{20}, {20, 21}, {20, 50, 80}])
async def test_after_a_loss_the_latency_is_what_it_was(lost: set[int], first: int) -> None:
    out = await decoded(receiver_of(patched=True), [packet(i, first) for i in range(100) if i not in lost])
    assert [frame for _, frame in out] == [i for i in range(100) if i not in lost]  # the lost ones and no others
    late = {frame: newest - frame for newest, frame in out}
    assert max(late.values()) <= 2 + len(lost) - 1
    assert all(late[frame] == 0 for frame in late if not any(0 < frame - each <= 4 for each in lost))


async def test_the_stock_buffer_stays_late_after_a_loss() -> None:
    """What the patch is for; if this fails, aiortc has changed and the patch may go."""
    out = await decoded(receiver_of(patched=False), [packet(i) for i in range(100) if i != 20])
    late = {frame: newest - frame for newest, frame in out}
    assert late[15] < late[80]


async def test_packets_that_overtook_each_other_are_put_in_order() -> None:
    order = [0, 1, 2, 4, 3, 5, 8, 7, 6, 9]
    out = await decoded(receiver_of(patched=True), [packet(i) for i in order])
    assert [frame for _, frame in out] == list(range(10))


async def test_the_installed_versions_have_what_is_used() -> None:
    patches.check()


async def test_a_name_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "_DECODER", "_RTCRtpReceiver__elsewhere")
    with pytest.raises(RuntimeError, match="__elsewhere"):
        patches.check()


async def answer_with(*candidates: str) -> str:
    """The candidate lines of an answer."""
    client, server = RTCPeerConnection(), RTCPeerConnection()
    client.createDataChannel("any")
    try:
        await client.setLocalDescription(await client.createOffer())
        await server.setRemoteDescription(client.localDescription)
        patches.offer_only(server, [parse(each) for each in candidates])
        await server.setLocalDescription(await server.createAnswer())
        return "\n".join(line for line in server.localDescription.sdp.splitlines() if line.startswith("a=candidate"))
    finally:
        await server.close()
        await client.close()


async def test_everything_that_arrives_is_a_sign_of_life() -> None:
    client, server = RTCPeerConnection(), RTCPeerConnection()
    signs: list[None] = []
    came = asyncio.Event()
    client.createDataChannel("any")

    @server.on("datachannel")
    def _(channel: RTCDataChannel) -> None:
        came.set()

    try:
        await client.setLocalDescription(await client.createOffer())
        await server.setRemoteDescription(client.localDescription)
        patches.on_arrival(server, lambda: signs.append(None))
        await server.setLocalDescription(await server.createAnswer())
        assert signs == []
        await client.setRemoteDescription(server.localDescription)
        await came.wait()
        assert len(signs) > 4  # a check, and what DTLS and SCTP say to begin with
    finally:
        await client.close()
        await server.close()


async def test_only_the_addresses_that_were_asked_for_are_offered() -> None:
    lines = (await answer_with("127.0.0.1")).splitlines()
    assert [line.split()[4] for line in lines] == ["127.0.0.1"]


async def test_the_public_address_is_told_and_the_port_is_in_its_range() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        low = min(probe.getsockname()[1], 65_000)
    (line,) = (await answer_with(f"203.0.113.7=127.0.0.1@{low}-{low + 50}")).splitlines()
    assert line.split()[4] == "203.0.113.7"
    assert low <= int(line.split()[5]) <= low + 50


async def test_a_range_without_a_free_port_is_told() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="no free UDP port"):
            await answer_with(f"127.0.0.1@{port}-{port}")


async def test_what_waits_to_be_heard_is_bounded_and_its_end_is_not_lost() -> None:
    receiver = receiver_of(patched=True)
    coming: asyncio.Queue[Any] = getattr(receiver.track, patches._QUEUE)
    for number in range(3 * patches.MOST_HEARD):
        frame = AudioFrame(format="s16", layout="mono", samples=160)
        frame.pts = number
        await coming.put(frame)
    await coming.put(None)
    assert coming.qsize() == patches.MOST_HEARD
    first = await receiver.track.recv()
    assert first.pts == 2 * patches.MOST_HEARD + 1
    heard = [coming.get_nowait() for _ in range(coming.qsize())]
    assert heard[-1] is None


async def test_a_peer_that_only_listens_has_no_sound_to_bound() -> None:
    assert patches.pass_through(RTCRtpReceiver("audio", Wire()))  # type: ignore[arg-type]  # stands in for a transport
