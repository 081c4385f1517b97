"""The parts of the pages that need no call, run in the browser that they are for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.browser.conftest import Launch
from tests.clients.conftest import Serving

pytestmark = pytest.mark.browser


@pytest.fixture
def run(launch: Launch, server: Serving) -> Any:
    """Evaluate the body of an async function in a page of the server."""
    page = launch().new_page()
    page.goto(server.url + "/icon.svg")
    page.goto(server.url + "/")

    def evaluate(body: str, argument: Any = None) -> Any:
        return page.evaluate(f"async (given) => {{ {body} }}", argument)

    return evaluate


@pytest.mark.parametrize("rate", [48_000, 44_100, 16_000, 96_000])
def test_microphones_of_any_rate_become_24_khz(run: Any, rate: int) -> None:
    out = run(
        """
        const { Resampler } = await import("/lib/worklets/resample.js");
        const input = Float32Array.from({ length: given }, (_, i) => 0.5 * Math.sin((2 * Math.PI * 1000 * i) / given));
        const resampler = new Resampler(given, 24000);
        const out = [];
        for (let i = 0; i < input.length; i += 128) out.push(...resampler.feed(input.subarray(i, i + 128)));
        return out;
        """,
        rate,
    )
    expected = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(len(out)) / 24_000)
    noise = np.array(out)[400:-400] - expected[400:-400]
    assert abs(len(out) - 24_000) <= 64
    assert 10 * np.log10(np.mean(expected**2) / np.mean(noise**2)) > 60


PLAY = """
  const context = new OfflineAudioContext(1, 24000, 24000);
  await context.audioWorklet.addModule("/lib/worklets/playback.js");
  const node = new AudioWorkletNode(context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
  node.connect(context.destination);
  const told = [];
  node.port.onmessage = ({ data }) => told.push(data);
  const put = (item, length, from = 0) => {
    const pcm = Int16Array.from({ length }, (_, i) => 8000 * Math.sin((from + i) / 20));
    node.port.postMessage({ put: item, pcm: pcm.buffer }, [pcm.buffer]);
  };
  const moment = () => new Promise((resolve) => setTimeout(resolve, 50));
  const at = (seconds, act) => // with the rendering held, so that messages arrive at just that time
    context.suspend(seconds).then(async () => {
      act();
      await moment();
      await context.resume();
    });
  const rendered = async () => {
    const sound = await context.startRendering();
    await moment();
    return { sound: [...sound.getChannelData(0)], told };
  };
"""


def test_what_is_put_is_played_and_counted(run: Any) -> None:
    got = run(
        PLAY
        + """
        at(0, () => { put("a", 3000); put("a", 3000, 3000); node.port.postMessage({ end: "a" }); });
        return rendered();
        """
    )
    sound = np.array(got["sound"])
    first = int(np.flatnonzero(sound)[0]) - 1
    expected = np.trunc(8000 * np.sin(np.arange(6000) / 20)) / 32768
    assert np.abs(sound[first : first + 6000] - expected).max() < 1e-4
    assert got["told"][-1] == {"item": "a", "played": 6000, "ended": True}
    counts = [each["played"] for each in got["told"]]
    assert counts == sorted(counts)


def test_a_cut_fades_and_tells_what_was_heard(run: Any) -> None:
    got = run(
        PLAY
        + """
        at(0, () => put("a", 20000));
        at(0.256, () => node.port.postMessage({ clear: true }));
        return rendered();
        """
    )
    cleared = [each for each in got["told"] if "cleared" in each]
    assert len(cleared) == 1
    assert cleared[0]["cleared"] == "a"
    sound = np.array(got["sound"])
    stop = int(np.flatnonzero(sound)[-1])
    assert 0.256 * 24000 <= stop <= 0.256 * 24000 + 192 + 256  # 8 ms of fade, and the block being rendered
    assert cleared[0]["played"] <= stop + 1
    assert np.abs(np.diff(sound)).max() < 2 * 8000 / 20 / 32768  # no click


def test_the_ledger_tells_what_was_not_heard(run: Any) -> None:
    got = run(
        """
        const { Ledger } = await import("/lib/ledger.js");
        const ledger = new Ledger(24000);
        ledger.receive("a", 24000); ledger.play("a", 24000);
        ledger.receive("b", 24000); ledger.play("b", 12000); ledger.play("b", 6000);
        ledger.receive("c", 2400);
        const before = ledger.unheard();
        ledger.play("b", 99999);
        return { before, after: ledger.unheard(), progress: ledger.progress("b") };
        """
    )
    assert got["before"] == [{"item": "b", "heard": 500}, {"item": "c", "heard": 0}]
    assert got["after"] == [{"item": "c", "heard": 0}]
    assert got["progress"] == {"item": "b", "played": 1000, "total": None}


def test_sound_survives_the_text_of_json(run: Any) -> None:
    assert run(
        """
        const { toBase64, fromBase64 } = await import("/lib/sound.js");
        const bytes = Uint8Array.from({ length: 100001 }, (_, i) => (i * 7) % 256);
        const back = new Uint8Array(fromBase64(toBase64(bytes.buffer)));
        return back.length === bytes.length && back.every((byte, i) => byte === bytes[i]);
        """
    )


def test_tries_are_spread_and_grow_to_a_limit(run: Any) -> None:
    waits = run(
        """
        const { backOff } = await import("/lib/call.js");
        return [1, 2, 3, 4, 5, 6, 7].map((attempt) => [backOff(attempt, 0), backOff(attempt, 1)]);
        """
    )
    assert waits[0] == [0.375, 0.625]
    assert waits[-1] == [6, 10]
    assert all(low < high for low, high in waits)


def test_text_is_shown_as_far_as_it_was_said(run: Any) -> None:
    got = run(
        """
        const { spokenLength } = await import("/lib/conversation.js");
        const text = "one two three four";
        return [[0, 2000], [500, 2000], [1000, 2000], [2000, 2000], [9000, 2000], [300, null], [60000, null]].map(
          ([played, total]) => text.slice(0, spokenLength(text, played, total)));
        """
    )
    assert got == ["one", "one two", "one two three", "one two three four", "one two three four", "one two",
                   "one two three four"]  # fmt: skip


@pytest.mark.parametrize("width", [300, 420, 900])
def test_no_part_of_the_drawing_lies_on_another(run: Any, width: int) -> None:
    got = run(
        """
        const { layout } = await import("/lib/graph-layout.js");
        const graph = await (await fetch("/v1/graph/toy")).json();
        return layout(graph, given);
        """,
        width,
    )
    names = {node["key"] for node in got["nodes"]}
    assert {"ear/vad", "lm/LM", "vocoder/vocoder", "world/decode"} <= names
    for boxes in (got["nodes"], got["lanes"]):
        for index, one in enumerate(boxes):
            assert one["x"] >= 0
            assert one["x"] + one["w"] <= width
            for other in boxes[index + 1 :]:
                apart = (
                    one["x"] + one["w"] <= other["x"]
                    or other["x"] + other["w"] <= one["x"]
                    or one["y"] + one["h"] <= other["y"]
                    or other["y"] + other["h"] <= one["y"]
                )
                assert apart, (one, other)
    assert sum(path["kind"] == "stream" for path in got["paths"]) >= 6


def test_two_uses_of_one_component_light_apart(run: Any) -> None:
    got = run(
        """
        const { GraphDrawing } = await import("/lib/graph.js");
        const { firings } = await import("/lib/trace.js");
        const use = (name) => ({ name, component: "ASR", loop: "" });
        const walk = { name: "hear", then: "", nodes: [use("ASR_begin"), use("ASR")], edges: [] };
        const partitions = [{ name: "asr", walks: [walk] }];
        const place = document.body.appendChild(document.createElement("div"));
        const empty = { components: [], streams: [], live: [], tasks: [] };
        const drawing = new GraphDrawing(place, { name: "g", partitions, ...empty });
        const row = (node) => [0, "worker.main", "s.1", "ASR", "hear", 1, 12, 0, -1, -1, node];
        const told = firings({ type: "mstar.trace", records: [row("ASR"), row("ASR"), row("ASR_begin")] });
        for (const firing of told.slice(0, 2)) drawing.flash(firing);
        const lit = [...place.querySelectorAll(".lit .name")].map((name) => name.textContent);
        drawing.flash(told[2]);
        return [lit, [...place.querySelectorAll(".count")].map((count) => count.textContent)];
        """
    )
    assert got == [["ASR"], ["1 × 12 ms", "2 × 12 ms"]]


def test_what_is_written_during_an_answer_is_answered_behind_it(run: Any) -> None:
    told = run(
        """
        const { Call } = await import("/lib/call.js");
        const sent = [];
        const shown = [];
        const note = (event) => shown.push(event.type);
        const owner = { state() {}, playing() {}, lost() {}, replay: () => [], event: note };
        const call = new Call({ transport: "websocket" }, null, owner);
        call.transport = { send: (event) => sent.push(event.type), interrupt: async () => {}, close() {} };
        call.state = "open";
        await call.write("hello");
        call.event({ type: "error", error: { code: "conversation_already_has_active_response", message: "wait" } });
        const before = sent.length;
        call.event({ type: "response.done", response: {} });
        call.event({ type: "response.done", response: {} });
        call.event({ type: "error", error: { code: "something_else", message: "no" } });
        return { sent, before, shown };
        """
    )
    assert told["sent"] == ["conversation.item.create", "response.create", "response.create"]
    assert told["before"] == 2
    assert told["shown"] == ["response.done", "response.done", "error"]
