/** The Realtime API over WebSocket: sound as base64, what was heard counted here. */

import { addressOf, bearer, refusal } from "./address.js";
import { Player } from "./player.js";
import { Recorder } from "./recorder.js";
import { fromBase64, toBase64 } from "./sound.js";

/** @typedef {import("./protocol.js").Closed} Closed */
/** @typedef {import("./protocol.js").Dial} Dial */
/** @typedef {import("./protocol.js").RealtimeEvent} RealtimeEvent */
/** @typedef {import("./protocol.js").Transport} Transport */

const OPEN_SECONDS = 10;
const KEY_PROTOCOL = "openai-insecure-api-key.";

/**
 * Connect, or throw nothing: a failure comes as `listener.closed`.
 * @param {Dial} dial @param {AbortSignal} signal
 * @returns {Promise<Transport | null>}
 */
export async function dialSocket(dial, signal) {
  const url = addressOf(dial, "/v1/realtime");
  const socket = await opened(url, dial.key, signal);
  if (socket === null) {
    if (!signal.aborted) dial.listener.closed(await whyNot(url, dial));
    return null;
  }
  const call = new SocketCall(socket, dial);
  try {
    await call.start();
  } catch (why) {
    call.close();
    throw why;
  }
  if (signal.aborted) {
    call.close();
    return null;
  }
  return call;
}

/**
 * @param {URL} address @param {string} key @param {AbortSignal} signal
 * @returns {Promise<WebSocket | null>}
 */
function opened(address, key, signal) {
  const url = new URL(address);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return new Promise((resolve) => {
    const socket = new WebSocket(url, key ? ["realtime", KEY_PROTOCOL + key] : ["realtime"]);
    const limit = setTimeout(() => socket.close(), OPEN_SECONDS * 1000);
    const over = () => {
      clearTimeout(limit);
      resolve(null);
    };
    signal.addEventListener("abort", () => socket.close(), { once: true });
    socket.addEventListener("close", over);
    socket.addEventListener("open", () => {
      clearTimeout(limit);
      socket.removeEventListener("close", over);
      resolve(socket);
    });
  });
}

/**
 * A browser does not say why a WebSocket was refused; asking for the same address over HTTP does.
 * @param {URL} url @param {Dial} dial @returns {Promise<Closed>}
 */
async function whyNot(url, dial) {
  try {
    const response = await fetch(url, { headers: bearer(dial.key), cache: "no-store" });
    if (response.status !== 426) return await refusal(response);
  } catch {
    return { text: "The server can not be reached.", retry: true };
  }
  return { text: "The server did not take the call.", retry: true };
}

/** @implements {Transport} */
class SocketCall {
  name = /** @type {const} */ ("websocket");

  /** @param {WebSocket} socket @param {Dial} dial */
  constructor(socket, dial) {
    this.socket = socket;
    this.dial = dial;
    this.listener = dial.listener;
    /** @type {Recorder | null} */
    this.recorder = null;
    /** @type {Player | null} */
    this.player = null;
    /** The response being made. */
    this.active = "";
    /** Responses whose late sound is not played. @type {Set<string>} */
    this.dropped = new Set();
    /** Events that came before the loudspeaker was ready. @type {RealtimeEvent[]} */
    this.early = [];
    socket.onmessage = ({ data }) => this.take(JSON.parse(data));
    socket.onclose = (event) => this.ended(event);
  }

  get input() {
    return this.recorder?.analyser ?? null;
  }

  get output() {
    return this.player?.analyser ?? null;
  }

  async start() {
    this.player = await Player.open(this.dial.speaker, (playing) => this.listener.playing(playing));
    for (const event of this.early.splice(0)) this.take(event);
    if (this.dial.microphone) await this.useMicrophone(this.dial.microphone);
  }

  /** @param {RealtimeEvent} event */
  take(event) {
    if (!this.player) {
      this.early.push(event);
      return;
    }
    switch (event.type) {
      case "response.created":
        this.active = event["response"].id;
        break;
      case "response.output_audio.delta":
        if (!this.dropped.has(event["response_id"])) this.player.put(event["item_id"], fromBase64(event["delta"]));
        return; // nobody else needs the sound
      case "response.output_audio.done":
        if (!this.dropped.has(event["response_id"])) this.player.end(event["item_id"]);
        break;
      case "response.done":
        if (this.active === event["response"].id) this.active = "";
        this.dropped.delete(event["response"].id);
        break;
      case "input_audio_buffer.speech_started":
        void this.cut();
        break;
    }
    this.listener.event(event);
  }

  /** Silence the loudspeaker and tell the server what was heard. */
  async cut() {
    if (this.active) this.dropped.add(this.active);
    for (const { item, heard } of (await this.player?.clear()) ?? []) {
      this.send({ type: "conversation.item.truncate", item_id: item, content_index: 0, audio_end_ms: heard });
    }
  }

  async interrupt() {
    if (this.active) this.send({ type: "response.cancel", response_id: this.active });
    await this.cut();
  }

  /** @param {RealtimeEvent} event */
  send(event) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(event));
  }

  /** @param {MediaStream} microphone */
  async useMicrophone(microphone) {
    this.recorder?.close();
    this.recorder = await Recorder.open(microphone, (pcm) =>
      this.send({ type: "input_audio_buffer.append", audio: toBase64(pcm) }),
    );
  }

  /** @param {string} device */
  async useSpeaker(device) {
    await this.player?.useSpeaker(device);
  }

  /** @param {CloseEvent} event */
  ended(event) {
    this.free();
    this.listener.closed(closing(event.code, event.reason));
  }

  close() {
    this.socket.onclose = null;
    this.socket.onmessage = null;
    this.socket.close(1000);
    this.free();
  }

  free() {
    this.recorder?.close();
    this.player?.close();
    this.recorder = null;
    this.player = null;
  }
}

/** @param {number} code @param {string} reason @returns {Closed} */
function closing(code, reason) {
  const said = reason ? ` (${reason.replaceAll("_", " ")})` : "";
  switch (code) {
    case 1000:
      return { text: "The server ended the call.", retry: false };
    case 1001:
      return { text: `The server ended the call${said}.`, retry: true };
    case 1008:
      return { text: `The server refused to go on${said}.`, retry: false };
    default:
      return { text: `The connection was lost${said}.`, retry: true };
  }
}
