/** What was said by both sides, from the server's events. Knows no document and no clock. */

/** @typedef {import("./protocol.js").RealtimeEvent} RealtimeEvent */

/**
 * @typedef {Object} Entry
 * @property {string} id
 * @property {"user" | "assistant"} role
 * @property {string} text everything that came
 * @property {number} spoken characters of it that were said aloud by now; all of them for the user
 * @property {boolean} done no more will come
 * @property {boolean} aloud said, not written
 * @property {string} note why it ends early; "" if it does not
 * @property {string | null} heard what of an interrupted answer was heard; null = all, or not known
 */

/** Characters a second of speech, until the length of its sound is known. */
const PACE = 14;

export class Conversation {
  constructor() {
    /** @type {Map<string, Entry>} */
    this.entries = new Map();
    /** Item of each response. @type {Map<string, string>} */
    this.items = new Map();
  }

  /**
   * Take an event in.
   * @param {RealtimeEvent} event @returns {Entry | null} the entry that changed
   */
  apply(event) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        return this.of(event["item_id"], "user", true);
      case "conversation.item.added":
        return this.added(event["item"]);
      case "conversation.item.input_audio_transcription.delta":
        return this.say(event["item_id"], event["delta"]);
      case "conversation.item.input_audio_transcription.completed":
        return this.settle(event["item_id"], event["transcript"]);
      case "conversation.item.input_audio_transcription.failed":
        return this.settle(event["item_id"], "", event["error"]?.message ?? "not transcribed");
      case "response.output_audio_transcript.delta":
      case "response.output_text.delta":
        this.items.set(event["response_id"], event["item_id"]);
        return this.say(event["item_id"], event["delta"], event.type === "response.output_audio_transcript.delta");
      case "response.done":
        return this.finished(event["response"]);
      case "conversation.item.truncated":
        return this.note(event["item_id"], "interrupted");
      case "conversation.item.retrieved":
        return this.retrieved(event["item"]);
      default:
        return null;
    }
  }

  /**
   * How far the listener has come.
   * @param {import("./protocol.js").Playing} playing @returns {Entry | null}
   */
  play({ item, played, total }) {
    const entry = this.entries.get(item);
    if (!entry) return null;
    entry.spoken = Math.max(entry.spoken, spokenLength(entry.text, played, total));
    return entry;
  }

  /**
   * What a new session has to be told to go on with this conversation.
   * @returns {RealtimeEvent[]}
   */
  replay() {
    return [...this.entries.values()]
      .map((entry) => ({ ...entry, text: entry.heard ?? entry.text }))
      .filter((entry) => entry.text && (entry.done || entry.role === "assistant"))
      .map(({ id, role, text }) => ({
        type: "conversation.item.create",
        item: {
          id,
          type: "message",
          role,
          content: [{ type: role === "user" ? "input_text" : "output_text", text }],
        },
      }));
  }

  /** The connection has gone: nothing more comes of what is open. @returns {Entry[]} those that changed */
  close() {
    const open = [...this.entries.values()].filter((entry) => !entry.done);
    for (const entry of open) {
      entry.done = true;
      if (entry.role === "assistant") entry.note = "interrupted";
    }
    return open;
  }

  /** @param {any} item @returns {Entry | null} */
  added(item) {
    if (item.type !== "message" || (item.role !== "user" && item.role !== "assistant")) return null;
    const part = item.content?.[0];
    const known = this.entries.get(item.id);
    if (known?.done) return known; // told again to a new session
    const entry = this.of(item.id, item.role, item.role === "assistant" || part?.type === "input_audio");
    if (part?.text) {
      entry.text = part.text;
      entry.spoken = part.text.length;
      entry.aloud = false;
      entry.done = true;
    }
    return entry;
  }

  /** @param {string} id @param {"user" | "assistant"} role @param {boolean} aloud @returns {Entry} */
  of(id, role, aloud) {
    let entry = this.entries.get(id);
    if (!entry) {
      entry = { id, role, text: "", spoken: 0, done: false, aloud, note: "", heard: null };
      this.entries.set(id, entry);
    }
    return entry;
  }

  /** @param {string} id @param {string} delta @param {boolean} [aloud] @returns {Entry} */
  say(id, delta, aloud = true) {
    const entry = this.of(id, "assistant", aloud);
    entry.text += delta;
    entry.aloud = aloud;
    if (entry.role === "user" || !aloud) entry.spoken = entry.text.length;
    return entry;
  }

  /** @param {string} id @param {string} transcript @param {string} [note] @returns {Entry} */
  settle(id, transcript, note = "") {
    const entry = this.of(id, "user", true);
    entry.text = transcript;
    entry.spoken = transcript.length;
    entry.note = note;
    entry.done = true;
    return entry;
  }

  /** @param {any} response @returns {Entry | null} */
  finished(response) {
    const entry = this.entries.get(this.items.get(response.id) ?? response.output?.[0]?.id ?? "");
    this.items.delete(response.id);
    if (!entry) return null;
    entry.done = true;
    if (response.status === "cancelled") entry.note ||= "interrupted";
    if (response.status === "incomplete") entry.note ||= "cut at its length limit";
    if (response.status === "failed") entry.note = response.status_details?.error?.message ?? "failed";
    return entry;
  }

  /** @param {string} id @param {string} note @returns {Entry | null} */
  note(id, note) {
    const entry = this.entries.get(id);
    if (!entry) return null;
    entry.note = note;
    return entry;
  }

  /** @param {any} item @returns {Entry | null} */
  retrieved(item) {
    const entry = this.entries.get(item.id);
    if (!entry || entry.role !== "assistant") return null;
    entry.heard = item.content?.[0]?.transcript ?? "";
    entry.spoken = entry.heard?.length ?? 0;
    return entry;
  }
}

/**
 * Characters of a text that have been said, to the end of a word.
 * @param {string} text @param {number} played ms @param {number | null} total ms of its whole sound, if known
 * @returns {number}
 */
export function spokenLength(text, played, total) {
  if (total !== null && played >= total) return text.length;
  const share = total ? (played / total) * text.length : (played / 1000) * PACE;
  const end = text.slice(Math.floor(share)).search(/\s/);
  return end < 0 ? text.length : Math.floor(share) + end;
}
