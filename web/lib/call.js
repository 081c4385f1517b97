/** One conversation over as many connections as it takes: dial, greet, hand on, dial again after a loss. */

import { Unavailable } from "./microphone.js";
import { dialRtc } from "./rtc.js";
import { dialSocket } from "./socket.js";

/** @typedef {import("./protocol.js").Closed} Closed */
/** @typedef {import("./protocol.js").Playing} Playing */
/** @typedef {import("./protocol.js").RealtimeEvent} RealtimeEvent */
/** @typedef {import("./protocol.js").Transport} Transport */

/**
 * @typedef {Object} Wishes
 * @property {string} origin
 * @property {string} model "" = the server's first
 * @property {string} key
 * @property {"webrtc" | "websocket"} transport
 * @property {"server_vad" | "semantic_vad"} turns how the end of a turn is found
 * @property {string} speaker
 */

/**
 * @typedef {Object} Owner
 * @property {(state: "connecting" | "open" | "waiting" | "idle") => void} state
 * @property {(event: RealtimeEvent) => void} event
 * @property {(playing: Playing) => void} playing
 * @property {(why: Closed, seconds: number | null) => void} lost `seconds` until the next try; null = none follows
 * @property {() => RealtimeEvent[]} replay what a new session is told first
 */

const TRIES = 6;
const FIRST_WAIT_SECONDS = 0.5;
const LONGEST_WAIT_SECONDS = 8;
const BUSY = "conversation_already_has_active_response";

/**
 * Seconds to wait before try `attempt` (1, 2, …): doubling, spread so that many clients do not come at once.
 * @param {number} attempt @param {number} [random] 0 … 1
 */
export function backOff(attempt, random = Math.random()) {
  return Math.min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (attempt - 1)) * (0.75 + 0.5 * random);
}

export class Call {
  /** @type {Transport | null} */
  transport = null;
  /** @type {"connecting" | "open" | "waiting" | "idle"} */
  state = "idle";

  /** @param {Wishes} wishes @param {MediaStream | null} microphone @param {Owner} owner */
  constructor(wishes, microphone, owner) {
    this.wishes = wishes;
    this.microphone = microphone;
    this.owner = owner;
    this.ending = new AbortController();
    this.attempt = 0;
    this.created = false;
    /** Whether an answer to what was written has to wait for one in progress. */
    this.waiting = false;
    /** Events to send as soon as there is a session. @type {RealtimeEvent[]} */
    this.outbox = [];
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  start() {
    void this.dial();
  }

  async dial() {
    this.to("connecting");
    this.created = this.waiting = false;
    const dial = this.wishes.transport === "webrtc" ? dialRtc : dialSocket;
    try {
      this.transport = await dial({ ...this.wishes, microphone: this.microphone, listener: this }, this.ending.signal);
      this.greet();
    } catch (why) {
      if (this.ending.signal.aborted) return;
      const text = why instanceof Unavailable ? why.message : `The call can not be made: ${String(why)}`;
      this.closed({ text, retry: false });
    }
  }

  /** The session is there and can be spoken with: say what it should know. */
  greet() {
    if (!this.transport || !this.created || this.state === "open") return;
    this.attempt = 0;
    this.to("open");
    this.transport.send({
      type: "session.update",
      session: {
        type: "realtime",
        audio: {
          input: { transcription: { model: "default" }, turn_detection: { type: this.wishes.turns } },
        },
      },
    });
    for (const event of [...this.owner.replay(), ...this.outbox.splice(0)]) this.transport.send(event);
  }

  /** Listener. @param {RealtimeEvent} event */
  event(event) {
    if (event.type === "session.created") {
      this.created = true;
      this.greet();
    }
    if (event.type === "error" && event["error"].code === BUSY) {
      this.waiting = true; // what was said while that was written is being answered
      return;
    }
    if (event.type === "response.done" && this.waiting) {
      this.waiting = false;
      this.send({ type: "response.create" });
    }
    if (event.type === "conversation.item.truncated") {
      this.send({ type: "conversation.item.retrieve", item_id: event["item_id"] });
    }
    this.owner.event(event);
  }

  /** Listener. @param {Playing} playing */
  playing(playing) {
    this.owner.playing(playing);
  }

  /** Listener. @param {Closed} why */
  closed(why) {
    this.transport = null;
    const again = why.retry && this.attempt < TRIES && !this.ending.signal.aborted;
    if (!again) {
      this.owner.lost(why, null);
      this.stop();
      return;
    }
    this.attempt += 1;
    const seconds = Math.max(why.after ?? 0, backOff(this.attempt));
    this.to("waiting");
    this.owner.lost(why, seconds);
    this.timer = setTimeout(() => void this.dial(), seconds * 1000);
  }

  /** @param {RealtimeEvent} event */
  send(event) {
    if (this.state === "open") this.transport?.send(event);
    else this.outbox.push(event);
  }

  /** A message in writing; what is being said is cut short. @param {string} text */
  async write(text) {
    await this.transport?.interrupt();
    const content = [{ type: "input_text", text }];
    this.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
    this.send({ type: "response.create" });
  }

  interrupt() {
    void this.transport?.interrupt();
  }

  /** Another microphone for the call in progress. @param {MediaStream} microphone */
  async useMicrophone(microphone) {
    const before = this.microphone;
    this.microphone = microphone;
    for (const track of microphone.getAudioTracks()) track.enabled = before?.getAudioTracks()[0]?.enabled ?? true;
    await this.transport?.useMicrophone(microphone);
    for (const track of before?.getTracks() ?? []) track.stop();
  }

  stop() {
    clearTimeout(this.timer);
    this.ending.abort();
    this.transport?.close();
    this.transport = null;
    for (const track of this.microphone?.getTracks() ?? []) track.stop();
    this.to("idle");
  }

  /** @param {"connecting" | "open" | "waiting" | "idle"} state */
  to(state) {
    if (this.state === state) return;
    this.state = state;
    this.owner.state(state);
  }
}
