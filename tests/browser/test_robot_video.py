"""Video to and from a browser: as a robot whose camera is a canvas, and as one who looks at what a session imagines."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page
from websockets.sync.client import ClientConnection, connect

from server.robot.frames import Frame, Kind, pack_frame
from tests.browser.conftest import PATIENCE_MS, Launch
from tests.clients.conftest import PLANNER, Serving, serving
from tests.clients.test_robot_rtc import CODEC_LOSS, bars, middles, raw
from tests.painter.model import HORIZON, STEP

pytestmark = pytest.mark.browser

LOOK = """async ([path, side]) => {
  const peer = new RTCPeerConnection();
  const shown = peer.addTransceiver("video", { direction: "recvonly" });
  const video = Object.assign(document.createElement("video"), { autoplay: true, muted: true, playsInline: true });
  video.srcObject = new MediaStream([shown.receiver.track]);
  document.body.append(video);
  const copy = Object.assign(document.createElement("canvas"), { width: side, height: side });
  const pen = copy.getContext("2d", { willReadFrequently: true });
  const offer = async () => {
    await peer.setLocalDescription(await peer.createOffer());
    const answer = await fetch(path, {
      method: "POST", body: peer.localDescription.sdp, headers: { "Content-Type": "application/sdp" },
    });
    if (answer.status !== 201) throw new Error(await answer.text());
    await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
  };
  window.looking = {
    peer, offer,
    decoded: async () => {
      for (const row of (await shown.receiver.getStats()).values())
        if (row.type === "inbound-rtp") return row.framesDecoded;
      return 0;
    },
    colours: (places) => {
      pen.drawImage(video, 0, 0, side, side);
      return places.map((x) => Array.from(pen.getImageData(x, side / 2, 1, 1).data.slice(0, 3)));
    },
  };
}"""

ACT = """async ([side, colours]) => {
  const canvas = Object.assign(document.createElement("canvas"), { width: side, height: side });
  const pen = canvas.getContext("2d");
  setInterval(() => {
    colours.forEach((colour, n) => {
      pen.fillStyle = `rgb(${colour.join()})`;
      pen.fillRect((n * side) / colours.length, 0, side / colours.length, side);
    });
  }, 33);
  const { peer, offer } = window.looking;
  peer.addTransceiver(canvas.captureStream(30).getVideoTracks()[0], { direction: "sendonly" });
  const channel = peer.createDataChannel("robot");
  const events = [];
  const now = () => performance.now() / 1000;
  const send = (event) => channel.send(JSON.stringify(event));
  channel.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    if (event.type !== "clock.ping") events.push(event);
    else send({ type: "clock.pong", id: event.id, t: now(), wall: performance.timeOrigin / 1000 + now() });
  };
  await offer();
  await new Promise((resolve) => (channel.onopen = resolve));
  window.robot = { events, send, now };
}"""

CLOSE_TO = """([places, wanted, most]) => looking.colours(places).every((colour, n) =>
  colour.every((level, channel) => Math.abs(level - wanted[n][channel]) < most))"""

PLACES = [8, 24, 40, 56]


@pytest.fixture(scope="module")
def painter() -> Iterator[Serving]:
    yield from serving(PLANNER)


@pytest.fixture
def page(painter: Serving, launch: Launch) -> Page:
    page = launch().new_context(bypass_csp=True).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(painter.url)
    return page


@contextmanager
def planning(server: Serving) -> Iterator[tuple[ClientConnection, str]]:
    """A robot over WebSocket that has a goal and has shown a picture → its connection, its session."""
    with connect(f"ws{server.url.removeprefix('http')}/v1/robot/session?model={PLANNER}") as socket:
        session = event_of(socket, "session.created")["session"]["id"]
        socket.send(json.dumps({"type": "session.update", "session": {"stale_ms": 60000, "wait_ms": 15000}}))
        socket.send(json.dumps({"type": "state", "t": time.monotonic(), "values": [1, 2]}))
        for kind, name in ((Kind.GOAL, "home"), (Kind.CAMERA, "camera")):
            socket.send(pack_frame(Frame(kind, name, 1, time.monotonic(), raw(bars()))))
        yield socket, session


def event_of(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next event of a type; pings are answered."""
    while True:
        event: dict[str, Any] = json.loads(socket.recv(timeout=PATIENCE_MS / 1000))
        if event["type"] == "clock.ping":
            socket.send(json.dumps({"type": "clock.pong", "id": event["id"], "t": time.monotonic()}))
        elif event["type"] == kind:
            return event


def test_who_looks_sees_every_imagined_frame_up_to_the_last(painter: Serving, page: Page) -> None:
    with planning(painter) as (socket, session):
        page.evaluate(LOOK, [f"/whep/{session}", 64])
        page.evaluate("looking.offer()")
        page.wait_for_function("looking.peer.connectionState === 'connected'")
        assert page.evaluate("looking.decoded()") == 0  # nothing was imagined yet
        socket.send(json.dumps({"type": "ask", "id": "a"}))
        assert event_of(socket, "chunk")["ask"] == "a"
        page.wait_for_function(f"async () => (await looking.decoded()) >= {HORIZON}")
        wanted = middles(bars(HORIZON * STEP)).tolist()
        page.wait_for_function(CLOSE_TO, arg=[PLACES, wanted, 2 * CODEC_LOSS])


def test_a_canvas_is_a_robots_camera(painter: Serving, page: Page) -> None:
    page.evaluate(LOOK, [f"/v1/robot/calls?model={PLANNER}", 64])
    page.evaluate(ACT, [64, [[40, 40, 40], [90, 90, 90], [140, 140, 140], [200, 200, 200]]])

    def event(kind: str) -> dict[str, Any]:
        page.wait_for_function("kind => robot.events.some(({ type }) => type === kind)", arg=kind)
        found: dict[str, Any] = page.evaluate("kind => robot.events.find(({ type }) => type === kind)", kind)
        return found

    event("session.created")
    page.evaluate(
        """() => {
          robot.send({ type: "session.update", session: { goal: "any", stale_ms: 60000, wait_ms: 15000 } });
          robot.send({ type: "state", t: robot.now(), values: [1, 2] });
          robot.send({ type: "ask", id: "a" });
        }"""
    )
    chunk = event("chunk")
    # Browsers draw canvases in the full range of levels and do not say so: greys come out up to 16 levels apart.
    assert abs(chunk["plan"]["energy"] - (40 + 90 + 140 + 200) / 4) < 16
    assert 0 <= chunk["age_ms"] < 1000 * page.evaluate("robot.now()")
    page.wait_for_function(f"async () => (await looking.decoded()) >= {HORIZON}")
    page.wait_for_function("places => new Set(looking.colours(places).map(String)).size === places.length", arg=PLACES)
