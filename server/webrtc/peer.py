"""One peer connection: an offer in, an answer out, its candidates, its data channel, its signs of life, its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiortc import (
    MediaStreamTrack,
    RTCBundlePolicy,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpTransceiver,
    RTCSessionDescription,
)
from aiortc.sdp import SessionDescription, candidate_from_sdp

from mstar.errors import Rejected
from server.webrtc import patches
from server.webrtc.addresses import Offered

log = logging.getLogger("mstar.webrtc")

ANSWER_SECONDS = 10.0
CONNECT_SECONDS = 15.0
"""Time between answer and connection; a peer that needs longer does not come."""
VANISHED_SECONDS = 8.0
"""A peer of whom nothing has arrived for so long is gone: even silent ones check the path or report every 3 s."""
CLOSE_SECONDS = 3.0
"""Closing an ICE agent may hang; after this time its sockets are taken away."""

Arrange = Callable[[Sequence[RTCRtpTransceiver]], None]
"""Decides what is done with an offer's sections: sets their directions and tracks. Raises Rejected."""


class Peer:
    """`answer` once, `close` once. `gone` and `channel` are called from the event loop.

    `sends`: tracks that end with the peer. `channel` is given the data channel named `label`.
    """

    def __init__(
        self,
        arrange: Arrange,
        sends: Sequence[MediaStreamTrack],
        offers: Sequence[Offered],
        ice_servers: Sequence[str],
        gone: Callable[[], None],
        label: str = "",
        channel: Callable[[RTCDataChannel], None] = lambda _: None,
    ) -> None:
        # An empty list is not the same as none: without one, a public STUN server would be asked.
        servers = [RTCIceServer(urls=url) for url in ice_servers]
        self._connection = RTCPeerConnection(RTCConfiguration(servers, bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
        patches.welcome_rsa(self._connection)
        self._arrange = arrange
        self._sends = sends
        self._offers = offers
        self._gone = gone
        self._label = label
        self._channel = channel
        self.talks = False
        """Whether the peer has a data channel."""
        self.user = ""
        """ICE user name of the offer; another one is an ICE restart."""
        self._closing: asyncio.Future[None] | None = None
        self.connected = asyncio.Event()
        self.arrival = 0.0
        """When the loop's clock saw the newest datagram of the peer."""
        self._connection.add_listener("datachannel", self._on_channel)
        self._connection.add_listener("connectionstatechange", self._on_state)

    async def answer(self, offer: str) -> str:
        """SDP offer → SDP answer with all candidates.

        Raises Rejected for an offer that can not be answered, OSError if there is no socket for it.
        """
        described = _described(offer)
        self.talks = any(media.kind == "application" for media in described.media)
        self.user = _user(described)

        async with _negotiating("offer"):
            await self._connection.setRemoteDescription(RTCSessionDescription(offer, "offer"))
            self._arrange(self._connection.getTransceivers())
            self._prepare()
            await self._connection.setLocalDescription(await self._connection.createAnswer())
        return self._connection.localDescription.sdp

    async def offer(self) -> str:
        """An SDP offer, with all candidates, of what the peer `sends`; then `accept` is called.

        Raises Rejected if none can be made in time, OSError if there is no socket for it.
        """
        async with _negotiating("offer"):
            for track in self._sends:
                self._connection.addTransceiver(track, direction="sendonly")
            self._prepare()
            await self._connection.setLocalDescription(await self._connection.createOffer())
        return self._connection.localDescription.sdp

    async def accept(self, answer: str) -> None:
        """The SDP answer to `offer`. Raises Rejected for one that can not be."""
        described = _described(answer, "answer")
        async with _negotiating("answer"):
            await self._connection.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        self.user = _user(described)

    def _prepare(self) -> None:
        """Before candidates are gathered."""
        patches.offer_only(self._connection, self._offers)
        patches.on_arrival(self._connection, self._arrived)

    async def candidate(self, line: str, mid: str) -> None:
        """One more address of the peer (RFC 8839, without "candidate:"); one that can not be used is passed over."""
        with contextlib.suppress(ValueError, AssertionError, IndexError, KeyError):  # whatever the parser makes of it
            found = candidate_from_sdp(line)
            found.sdpMid = mid
            await self._connection.addIceCandidate(found)

    async def vanished(self) -> None:
        """Returns when the peer has not come, or has gone without a word."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self.connected.wait()
        except TimeoutError:
            return
        while True:
            left = self.arrival + VANISHED_SECONDS - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await asyncio.sleep(left)

    async def close(self) -> None:
        """Free everything within `CLOSE_SECONDS`; safe to call twice. What can not be closed is taken apart."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._connection.close())
        await asyncio.wait({self._closing}, timeout=CLOSE_SECONDS)
        if not self._closing.done() or (not self._closing.cancelled() and self._closing.exception() is not None):
            log.warning("a peer connection does not close; its sockets are taken away")
            patches.drop_sockets(self._connection)
            self._closing.cancel()
        for track in self._sends:
            track.stop()

    def _arrived(self) -> None:
        self.arrival = asyncio.get_running_loop().time()

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if channel.label == self._label:
            self._channel(channel)

    def _on_state(self) -> None:
        match self._connection.connectionState:
            case "connected":
                self.connected.set()
            case "failed" | "closed":
                self._gone()


@asynccontextmanager
async def _negotiating(what: str) -> AsyncIterator[None]:
    """What goes wrong inside is Rejected as the fault of an "offer" or an "answer"; OSError is nobody's."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            yield
    except TimeoutError:
        raise Rejected("No answer could be made in time.", code="webrtc_timeout", param="sdp") from None
    except (Rejected, OSError):
        raise
    except Exception as why:  # aiortc raises whatever a wrong description makes happen: a session's edge
        text = f"The {what} can not be taken: {why!r:.200}"
        raise Rejected(text, code=f"invalid_{what}", param="sdp") from why


def check_offer(sdp: str) -> None:
    """Raises Rejected for text that is no offer, whatever it would be for."""
    _described(sdp)


def _user(described: SessionDescription) -> str:
    """ICE user name of a description."""
    return next((media.ice.usernameFragment or "" for media in described.media if media.ice is not None), "")


def _described(text: str, what: str = "offer") -> SessionDescription:
    """Raises Rejected for text that is no SDP."""
    try:
        found = SessionDescription.parse(text)
    except Exception as why:  # the parser takes the text apart without checks: a session's edge
        raise Rejected(f"The {what} is not valid SDP: {why!r:.200}", code=f"invalid_{what}", param="sdp") from why
    if not found.media:
        raise Rejected(f"The {what} has no sections.", code=f"invalid_{what}", param="sdp")
    names = [media.rtp.muxId for media in found.media if media.rtp.muxId]
    bundled = {name for group in found.group if group.semantic == "BUNDLE" for name in group.items}
    if len(set(names)) < len(names) or not bundled <= set(names):
        text = f"The names of the sections of the {what} are not one each, or not those of its bundle."
        raise Rejected(text, code=f"invalid_{what}", param="sdp")
    return found


def first(transceivers: Sequence[RTCRtpTransceiver], kind: str) -> RTCRtpTransceiver:
    """The first section of a kind; the others of any kind are declined. Raises Rejected without one."""
    chosen: RTCRtpTransceiver | None = None
    for transceiver in transceivers:
        if chosen is None and transceiver.kind == kind:
            chosen = transceiver
        else:
            transceiver.direction = "inactive"
    if chosen is None:
        raise Rejected(f"The offer has no {kind} section.", code="invalid_offer", param="sdp")
    return chosen
