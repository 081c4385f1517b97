/** The Realtime API over WebRTC: sound as audio tracks, events over the data channel `oai-events`. */

import { addressOf, bearer, refusal } from "./address.js";
import { Unavailable } from "./microphone.js";

/** @typedef {import("./protocol.js").Dial} Dial */
/** @typedef {import("./protocol.js").RealtimeEvent} RealtimeEvent */
/** @typedef {import("./protocol.js").Transport} Transport */

const OPEN_SECONDS = 15;
const GATHER_SECONDS = 2;
const LOST_SECONDS = 8;
const REPORT_MS = 100;

/**
 * Connect, or throw nothing: a failure comes as `listener.closed`.
 * @param {Dial} dial @param {AbortSignal} signal
 * @returns {Promise<Transport | null>}
 */
export async function dialRtc(dial, signal) {
  if (typeof RTCPeerConnection === "undefined") {
    throw new Unavailable("This browser has no WebRTC. Choose WebSocket in the settings.");
  }
  const call = new RtcCall(dial);
  signal.addEventListener("abort", () => call.close(), { once: true });
  const why = await call.connect(signal);
  if (why !== null) {
    call.close();
    if (!signal.aborted) dial.listener.closed(why);
    return null;
  }
  return call;
}

/** @implements {Transport} */
class RtcCall {
  name = /** @type {const} */ ("webrtc");
  /** @type {AnalyserNode | null} */
  input = null;
  /** @type {AnalyserNode | null} */
  output = null;

  /** @param {Dial} dial */
  constructor(dial) {
    this.dial = dial;
    this.listener = dial.listener;
    this.peer = new RTCPeerConnection({ iceServers: [] });
    this.channel = this.peer.createDataChannel("oai-events");
    this.context = new AudioContext({ latencyHint: "interactive" });
    this.element = new Audio();
    this.element.autoplay = true;
    this.sender = this.peer.addTransceiver(dial.microphone?.getAudioTracks()[0] ?? "audio", {
      direction: dial.microphone ? "sendrecv" : "recvonly",
    }).sender;
    if (dial.microphone) this.input = this.meter(dial.microphone);
    this.playout = new Playout((playing) => this.listener.playing(playing));
    this.over = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.lost = undefined;
    this.peer.ontrack = ({ track }) => this.play(new MediaStream([track]));
    this.channel.onmessage = ({ data }) => this.take(JSON.parse(data));
  }

  /**
   * @param {AbortSignal} signal
   * @returns {Promise<import("./protocol.js").Closed | null>} why it failed, or null
   */
  async connect(signal) {
    await this.peer.setLocalDescription(await this.peer.createOffer());
    await this.gathered();
    let response;
    try {
      response = await fetch(addressOf(this.dial, "/v1/realtime/calls"), {
        method: "POST",
        headers: { "Content-Type": "application/sdp", ...bearer(this.dial.key) },
        body: this.peer.localDescription?.sdp ?? "",
        signal,
      });
    } catch {
      return { text: "The server can not be reached.", retry: true };
    }
    if (!response.ok) return refusal(response);
    const answer = await response.text();
    if (this.over) return null;
    const open = this.opened();
    await this.peer.setRemoteDescription({ type: "answer", sdp: answer });
    if (!(await open)) {
      const text = "Sound can not reach the server (the network may block UDP). Choose WebSocket in the settings.";
      return { text, retry: true };
    }
    this.channel.onclose = () => this.ended("The connection was lost.");
    this.peer.onconnectionstatechange = () => this.changed();
    if (this.dial.speaker) await this.useSpeaker(this.dial.speaker);
    await this.context.resume();
    return null;
  }

  /** All candidates are in the offer, or enough time has passed. @returns {Promise<void>} */
  gathered() {
    return new Promise((resolve) => {
      const check = () => this.peer.iceGatheringState === "complete" && resolve();
      this.peer.onicegatheringstatechange = check;
      setTimeout(resolve, GATHER_SECONDS * 1000);
      check();
    });
  }

  /** @returns {Promise<boolean>} */
  opened() {
    return new Promise((resolve) => {
      const limit = setTimeout(() => resolve(false), OPEN_SECONDS * 1000);
      const done = (/** @type {boolean} */ good) => {
        clearTimeout(limit);
        resolve(good);
      };
      this.channel.onopen = () => done(true);
      this.channel.onclose = () => done(false);
      this.peer.onconnectionstatechange = () => this.peer.connectionState === "failed" && done(false);
    });
  }

  changed() {
    clearTimeout(this.lost);
    const state = this.peer.connectionState;
    if (state === "failed" || state === "closed") this.ended("The connection was lost.");
    if (state === "disconnected") {
      this.lost = setTimeout(() => this.ended("The connection was lost."), LOST_SECONDS * 1000);
    }
  }

  /** @param {MediaStream} stream */
  meter(stream) {
    const analyser = new AnalyserNode(this.context, { fftSize: 1024 });
    this.context.createMediaStreamSource(stream).connect(analyser);
    return analyser;
  }

  /** @param {MediaStream} stream */
  play(stream) {
    this.element.srcObject = stream;
    this.element.play().catch(() => {}); // a refused autoplay is taken up by `autoplay` at the next gesture
    this.output = this.meter(stream);
  }

  /** @param {RealtimeEvent} event */
  take(event) {
    this.playout.take(event);
    this.listener.event(event);
  }

  async interrupt() {
    this.send({ type: "output_audio_buffer.clear" });
  }

  /** @param {RealtimeEvent} event */
  send(event) {
    if (this.channel.readyState === "open") this.channel.send(JSON.stringify(event));
  }

  /** @param {MediaStream} microphone */
  async useMicrophone(microphone) {
    await this.sender.replaceTrack(microphone.getAudioTracks()[0] ?? null);
    this.input = this.meter(microphone);
  }

  /** @param {string} device */
  async useSpeaker(device) {
    await this.element.setSinkId?.(device);
  }

  /** @param {string} text */
  ended(text) {
    if (this.over) return;
    this.close();
    this.listener.closed({ text, retry: true });
  }

  close() {
    if (this.over) return;
    this.over = true;
    clearTimeout(this.lost);
    this.playout.stop();
    this.channel.onmessage = this.channel.onclose = this.channel.onopen = null;
    this.peer.onconnectionstatechange = this.peer.ontrack = null;
    this.peer.close();
    this.element.srcObject = null;
    void this.context.close();
  }
}

/** How far the answer has been played, from what the server says of its own count. */
class Playout {
  /** @param {(playing: import("./protocol.js").Playing) => void} playing */
  constructor(playing) {
    this.playing = playing;
    /** Items of responses. @type {Map<string, string>} */
    this.items = new Map();
    this.item = "";
    this.since = 0;
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.timer = undefined;
  }

  /** @param {RealtimeEvent} event */
  take(event) {
    switch (event.type) {
      case "response.content_part.added":
        this.items.set(event["response_id"], event["item_id"]);
        break;
      case "output_audio_buffer.started":
        this.stop();
        this.item = this.items.get(event["response_id"]) ?? "";
        this.since = performance.now();
        this.timer = setInterval(() => this.report(false), REPORT_MS);
        break;
      case "output_audio_buffer.stopped":
        this.report(true);
        this.items.delete(event["response_id"]);
        this.stop();
        break;
      case "output_audio_buffer.cleared":
        this.items.delete(event["response_id"]);
        this.stop();
        break;
    }
  }

  /** @param {boolean} ended */
  report(ended) {
    const played = performance.now() - this.since;
    if (this.item) this.playing({ item: this.item, played, total: ended ? played : null });
  }

  stop() {
    clearInterval(this.timer);
    this.item = "";
  }
}
