"""What is done to aiortc and aioice under their private names; `check` says at start if one of them is gone."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aioice import Candidate, ice, turn
from aioice.candidate import candidate_foundation, candidate_priority
from aiortc import RTCIceTransport, RTCPeerConnection, RTCRtpReceiver, RTCRtpTransceiver
from aiortc.jitterbuffer import JitterFrame
from aiortc.rtcrtpreceiver import RemoteStreamTrack
from aiortc.rtp import AnyRtcpPacket, RtcpSrPacket, RtpPacket
from av import VideoFrame
from OpenSSL import SSL

from media.jitter import EncodedFrame, PassThroughAudioBuffer
from server.webrtc.addresses import Offered
from server.webrtc.decoding import DecoderQueue
from server.webrtc.video_buffer import PromptVideoBuffer

_JITTER_BUFFER = "_RTCRtpReceiver__jitter_buffer"
_CODECS = "_RTCRtpReceiver__codecs"
_TIMESTAMPS = "_RTCRtpReceiver__timestamp_mapper"
_DECODER = "_RTCRtpReceiver__decoder_queue"
_FAULT = "_RTCRtpReceiver__decoder_error"
_REPORTED, _QUEUE = "_handle_rtcp_packet", "_queue"
_OFFERED = "_offerDirection"
_CERTIFICATES, _CONTEXT = "_RTCPeerConnection__certificates", "_create_ssl_context"

CIPHERS = b":".join(
    f"ECDHE-{signed}-{cipher}".encode()
    for cipher in ("AES128-GCM-SHA256", "CHACHA20-POLY1305", "AES128-SHA", "AES256-SHA")
    for signed in ("ECDSA", "RSA")
)
_ICE_TRANSPORTS = "_RTCPeerConnection__iceTransports"
_GATHER = "get_component_candidates"
_DATA, _REQUEST = "data_received", "request_received"

BIND_TRIES = 64
MOST_HEARD = 500
"""Decoded frames of sound that may wait to be heard: 10 s."""


class Newest(asyncio.Queue[Any]):
    """A bounded queue that nobody waits to put into: the oldest makes way."""

    async def put(self, item: Any) -> None:
        if self.full():
            self.get_nowait()
        self.put_nowait(item)


def check() -> None:
    """Raises RuntimeError if the installed aiortc or aioice is built otherwise than is assumed here."""
    peer = RTCPeerConnection()
    transceiver = peer.addTransceiver("audio")
    receiver = transceiver.receiver
    wanted: Sequence[tuple[Any, Sequence[str]]] = (
        (receiver, (_JITTER_BUFFER, _CODECS, _TIMESTAMPS, _DECODER, _FAULT, _REPORTED, "_enabled")),
        (getattr(receiver, _TIMESTAMPS), ("_origin",)),
        (RemoteStreamTrack("audio"), (_QUEUE,)),
        (transceiver, (_OFFERED,)),
        (peer, (_ICE_TRANSPORTS, _CERTIFICATES)),
        (getattr(peer, _CERTIFICATES)[0], (_CONTEXT,)),
        (ice.Connection, (_GATHER, _DATA, _REQUEST)),
    )
    for owner, names in wanted:
        for name in names:
            if not hasattr(owner, name):
                raise RuntimeError(f"this version of aiortc or aioice has no {name}")


def pass_through(receiver: RTCRtpReceiver) -> PassThroughAudioBuffer:
    """Put a buffer without lasting latency in the place of the receiver's audio jitter buffer, and bound what waits.

    The stock one waits for a lost packet until its ring wraps, and stays 200 ms late from then on. The queue of a stock
    track takes whatever a peer sends, however fast.
    """

    def extra(frame: EncodedFrame) -> None:
        codec = getattr(receiver, _CODECS)[frame.payload_type]
        frame.timestamp = getattr(receiver, _TIMESTAMPS).map(frame.timestamp)
        getattr(receiver, _DECODER).put((codec, frame))

    buffer = PassThroughAudioBuffer(extra)
    setattr(receiver, _JITTER_BUFFER, buffer)
    if receiver.track is not None:  # of a peer that only listens
        setattr(receiver.track, _QUEUE, Newest(MOST_HEARD))
    return buffer


@dataclass(frozen=True, slots=True)
class Viewed:
    """What is done with a receiver's video; all of it is called from the event loop."""

    frame: Callable[[VideoFrame, int, float], None]
    """A decoded frame, its RTP timestamp, and when it came."""
    report: Callable[[int, int], None]
    """A sender report: 64 bit NTP time and RTP timestamp of one moment."""
    dropped: Callable[[int], None]
    """So many frames were dropped undecoded."""


class _Sink:
    """In the place of the unbounded queue of a remote track: whatever is decoded is handed on at once."""

    def __init__(self, take: Callable[[VideoFrame], None]) -> None:
        self._take = take

    async def put(self, frame: VideoFrame | None) -> None:
        if frame is not None:
            self._take(frame)


def view(receiver: RTCRtpReceiver, viewed: Viewed) -> DecoderQueue:
    """Have a receiver's video handed on as it comes, through a bounded queue; before the peer is connected."""
    now = asyncio.get_running_loop().time
    timestamps = getattr(receiver, _TIMESTAMPS)
    decoder = DecoderQueue(now, getattr(receiver, _FAULT).set, viewed.dropped)
    reported = getattr(receiver, _REPORTED)

    def extra(frame: JitterFrame, packet: RtpPacket) -> None:
        frame.timestamp = timestamps.map(frame.timestamp)
        decoder.put((getattr(receiver, _CODECS)[packet.payload_type], frame))

    def take(frame: VideoFrame) -> None:
        assert frame.pts is not None
        viewed.frame(frame, (frame.pts + timestamps._origin) % 2**32, decoder.arrived(frame.pts) or now())  # noqa: SLF001

    async def report(packet: AnyRtcpPacket) -> None:
        if isinstance(packet, RtcpSrPacket):
            viewed.report(packet.sender_info.ntp_timestamp, packet.sender_info.rtp_timestamp)
        await reported(packet)

    setattr(receiver, _JITTER_BUFFER, PromptVideoBuffer(extra))
    setattr(receiver, _DECODER, decoder)
    setattr(receiver, _REPORTED, report)
    setattr(receiver.track, _QUEUE, _Sink(take))
    return decoder


def ignore(receiver: RTCRtpReceiver) -> None:
    """Have what comes thrown away undecoded."""
    receiver._enabled = False  # noqa: SLF001


def ways(transceiver: RTCRtpTransceiver) -> tuple[bool, bool]:
    """Whether the peer offers to send over this section, and to receive."""
    ours = getattr(transceiver, _OFFERED)  # the direction that answers the offer's
    return ours in {"recvonly", "sendrecv"}, ours in {"sendonly", "sendrecv"}


def welcome_rsa(peer: RTCPeerConnection) -> None:
    """Have peers taken whose certificate is signed with RSA, as GStreamer's is; the stock ciphers take ECDSA only."""
    for certificate in getattr(peer, _CERTIFICATES):
        setattr(certificate, _CONTEXT, partial(_with_ciphers, getattr(certificate, _CONTEXT)))


def _with_ciphers(make: Callable[..., SSL.Context], *arguments: Any, **named: Any) -> SSL.Context:
    context = make(*arguments, **named)
    context.set_cipher_list(CIPHERS)
    return context


def offer_only(peer: RTCPeerConnection, offers: Sequence[Offered]) -> None:
    """Have the peer's ICE agents listen on these addresses and no others; before candidates are gathered."""
    transports: set[RTCIceTransport] = getattr(peer, _ICE_TRANSPORTS)
    for transport in transports:
        setattr(transport.iceGatherer._connection, _GATHER, _gatherer(transport.iceGatherer._connection, offers))  # noqa: SLF001


def _gatherer(connection: ice.Connection, offers: Sequence[Offered]) -> Any:
    stock = connection.get_component_candidates

    async def gather(component: int, addresses: list[str], timeout: int = 5) -> list[Candidate]:  # noqa: ARG001, ASYNC109  as called by aioice
        free = [offer.address for offer in offers if offer.ports is None]
        candidates = await stock(component, free, timeout)
        for offer in offers:
            if offer.ports is not None:
                candidates.append(await _bound(connection, component, offer, offer.ports))
        publics = {offer.address: offer.public for offer in offers}
        for candidate in candidates:
            if candidate.type == "host":
                candidate.host = publics.get(candidate.host, candidate.host)
        return candidates

    return gather


async def _bound(connection: ice.Connection, component: int, offer: Offered, ports: tuple[int, int]) -> Candidate:
    """A host candidate on a free port of the range. Raises OSError if none is found."""
    loop = asyncio.get_running_loop()
    low, high = ports
    tries = random.sample(range(low, high + 1), min(BIND_TRIES, high - low + 1))
    for port in tries:
        try:
            transport, protocol = await loop.create_datagram_endpoint(
                lambda: ice.StunProtocol(connection), local_addr=(offer.address, port)
            )
        except OSError:
            continue
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, turn.UDP_SOCKET_BUFFER_SIZE)
        protocol.local_candidate = Candidate(
            foundation=candidate_foundation("host", "udp", offer.address),
            component=component,
            transport="udp",
            priority=candidate_priority(component, "host"),
            host=offer.address,
            port=port,
            type="host",
        )
        connection._protocols.append(protocol)  # noqa: SLF001
        return protocol.local_candidate
    raise OSError(f"no free UDP port in {low}-{high} on {offer.address}")


def on_arrival(peer: RTCPeerConnection, note: Callable[[], None]) -> None:
    """Have `note` called for every datagram of sound, of events, of their reports, and every check of the peer's."""
    transports: set[RTCIceTransport] = getattr(peer, _ICE_TRANSPORTS)
    for transport in transports:
        connection = transport.iceGatherer._connection  # noqa: SLF001
        for name in (_DATA, _REQUEST):
            setattr(connection, name, _noting(getattr(connection, name), note))


def _noting(taken: Callable[..., None], note: Callable[[], None]) -> Callable[..., None]:
    def take(*arguments: Any) -> None:
        note()
        taken(*arguments)

    return take


def drop_sockets(peer: RTCPeerConnection) -> None:
    """Close what a peer still listens on, without waiting for anything."""
    transports: set[RTCIceTransport] = getattr(peer, _ICE_TRANSPORTS)
    for transport in transports:
        for protocol in transport.iceGatherer._connection._protocols:  # noqa: SLF001
            protocol.transport.close()
