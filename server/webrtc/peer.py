"""One peer connection: an offer in, an answer out, its tracks, its data channel, its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

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
from aiortc.sdp import SessionDescription

from mstar.errors import Rejected
from server.webrtc import patches
from server.webrtc.addresses import Offered

log = logging.getLogger("mstar.webrtc")

CHANNEL = "oai-events"
ANSWER_SECONDS = 10.0
CLOSE_SECONDS = 3.0
"""Closing an ICE agent may hang; after this time its sockets are taken away."""


class Peer:
    """`answer` once, `close` once. `channel` and `gone` are called from the event loop."""

    def __init__(
        self,
        voice: MediaStreamTrack,
        offers: Sequence[Offered],
        ice_servers: Sequence[str],
        channel: Callable[[RTCDataChannel], None],
        gone: Callable[[str], None],
    ) -> None:
        # An empty list is not the same as none: without one, a public STUN server would be asked.
        servers = [RTCIceServer(urls=url) for url in ice_servers]
        self._connection = RTCPeerConnection(RTCConfiguration(servers, bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
        self._voice = voice
        self._offers = offers
        self._channel = channel
        self._gone = gone
        self.microphone: MediaStreamTrack | None = None
        """The peer's sound, if it sends any."""
        self.talks = False
        """Whether the peer has a data channel."""
        self.connected = asyncio.Event()
        self.arrival = 0.0
        """When the loop's clock saw the newest datagram of the peer."""
        self._connection.add_listener("datachannel", self._on_channel)
        self._connection.add_listener("connectionstatechange", self._on_state)

    async def answer(self, offer: str) -> str:
        """SDP offer → SDP answer with all candidates.

        Raises Rejected for an offer that can not be answered, OSError if there is no socket for it.
        """
        self.talks = _talks(offer)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._connection.setRemoteDescription(RTCSessionDescription(offer, "offer"))
                self._arrange()
                patches.offer_only(self._connection, self._offers)
                patches.on_arrival(self._connection, self._arrived)
                await self._connection.setLocalDescription(await self._connection.createAnswer())
        except TimeoutError:
            raise Rejected("No answer could be made in time.", code="webrtc_timeout", param="sdp") from None
        except (Rejected, OSError):
            raise
        except Exception as why:  # aiortc raises whatever a wrong offer makes happen: a session's edge
            raise Rejected(f"The offer can not be answered: {why!r:.200}", code="invalid_offer", param="sdp") from why
        return self._connection.localDescription.sdp

    def _arrange(self) -> None:
        """One audio section carries both voices; everything else of the offer is declined."""
        chosen: RTCRtpTransceiver | None = None
        for transceiver in self._connection.getTransceivers():
            if chosen is None and transceiver.kind == "audio":
                chosen = transceiver
            else:
                transceiver.direction = "inactive"
        if chosen is None:
            raise Rejected("The offer has no audio section.", code="invalid_offer", param="sdp")
        chosen.sender.replaceTrack(self._voice)
        chosen.direction = "sendrecv"
        patches.pass_through(chosen.receiver)
        self.microphone = chosen.receiver.track

    async def close(self) -> None:
        """Free everything within `CLOSE_SECONDS`; safe to call twice."""
        closing = asyncio.ensure_future(self._connection.close())
        done, _ = await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
        if not done:
            log.warning("a peer connection does not close; its sockets are taken away")
            patches.drop_sockets(self._connection)
            closing.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await closing
        self._voice.stop()

    def _arrived(self) -> None:
        self.arrival = asyncio.get_running_loop().time()

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if channel.label == CHANNEL:
            self._channel(channel)

    def _on_state(self) -> None:
        match self._connection.connectionState:
            case "connected":
                self.connected.set()
            case "failed" | "closed" as state:
                self._gone(state)


def _talks(offer: str) -> bool:
    """Whether an offer has a data channel. Raises Rejected for text that is none, or has no audio."""
    try:
        kinds = [media.kind for media in SessionDescription.parse(offer).media]
    except Exception as why:  # the parser takes the text apart without checks: a session's edge
        raise Rejected(f"The offer is not valid SDP: {why!r:.200}", code="invalid_offer", param="sdp") from why
    if "audio" not in kinds:
        raise Rejected("The offer has no audio section.", code="invalid_offer", param="sdp")
    return "application" in kinds
