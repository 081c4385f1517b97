/**
 * Plays the answer's sound and counts what was really rendered, item by item.
 *
 * In: {put: item, pcm: Int16 buffer} · {end: item} · {clear: true}.
 * Out: {item, played, ended} while it plays, {cleared: item, played} once after a clear. `played` in samples.
 */

const FADE_SECONDS = 0.008;
const REPORT_SECONDS = 0.02;
const PRIME_SECONDS = 0.04;
const PRIME_STEP = 0.005;
const PRIME_MOST = 0.2;

/** @typedef {{item: string, pcm: Int16Array, at: number}} Piece */

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    /** @type {Piece[]} */
    this.pieces = [];
    this.queued = 0;
    this.item = "";
    this.played = 0;
    this.ended = new Set();
    this.running = false;
    this.prime = PRIME_SECONDS;
    /** Tail of a cut answer, already fading. @type {number[]} */
    this.tail = [];
    this.last = 0;
    this.reported = 0;
    this.port.onmessage = ({ data }) => this.take(data);
  }

  /** @param {{put?: string, pcm?: ArrayBuffer, end?: string, clear?: boolean}} order */
  take(order) {
    if (order.put !== undefined && order.pcm) {
      const pcm = new Int16Array(order.pcm);
      this.pieces.push({ item: order.put, pcm, at: 0 });
      this.queued += pcm.length;
    } else if (order.end !== undefined) {
      this.ended.add(order.end);
      if (order.end === this.item && !this.queued) this.report();
    } else if (order.clear) {
      this.clear();
    }
  }

  clear() {
    const length = Math.round(FADE_SECONDS * sampleRate);
    const rest = this.running ? this.samples(length, false) : [];
    this.tail = rest.map((sample, i) => sample * (1 - (i + 1) / (rest.length || 1)));
    this.port.postMessage({ cleared: this.item, played: this.played });
    this.pieces = [];
    this.queued = 0;
    this.running = false;
    this.item = "";
    this.played = 0;
  }

  /**
   * The next samples of the queue, −1 … 1. `count`ed ones are heard; others only look ahead.
   * @param {number} length @param {boolean} counted @returns {number[]}
   */
  samples(length, counted) {
    /** @type {number[]} */
    const out = [];
    let index = 0;
    let at = this.pieces[0]?.at ?? 0;
    while (out.length < length && index < this.pieces.length) {
      const piece = /** @type {Piece} */ (this.pieces[index]);
      if (at >= piece.pcm.length) {
        index++;
        at = this.pieces[index]?.at ?? 0;
        continue;
      }
      out.push(/** @type {number} */ (piece.pcm[at++]) / 32768);
      if (counted) this.count(piece);
    }
    if (counted) {
      this.pieces = this.pieces.filter((piece) => piece.at < piece.pcm.length);
    }
    return out;
  }

  /** @param {Piece} piece */
  count(piece) {
    if (piece.item !== this.item) {
      if (this.item) this.report();
      this.item = piece.item;
      this.played = 0;
    }
    piece.at++;
    this.played++;
    this.queued--;
  }

  ready() {
    const head = this.pieces[0];
    return head !== undefined && (this.queued >= this.prime * sampleRate || this.ended.has(head.item));
  }

  report() {
    this.reported = 0;
    const ended = this.ended.has(this.item) && !this.pieces.some((piece) => piece.item === this.item);
    this.port.postMessage({ item: this.item, played: this.played, ended });
    if (ended) this.ended.delete(this.item);
  }

  /** @param {Float32Array[][]} _inputs @param {Float32Array[][]} outputs @returns {boolean} */
  process(_inputs, outputs) {
    const out = /** @type {Float32Array} */ (outputs[0]?.[0]);
    let at = 0;
    while (this.tail.length && at < out.length) out[at++] = /** @type {number} */ (this.tail.shift());
    if (!this.running && this.ready()) this.running = true;
    if (this.running && at < out.length) {
      const samples = this.samples(out.length - at, true);
      out.set(samples, at);
      at += samples.length;
      if (samples.length) this.last = /** @type {number} */ (samples[samples.length - 1]);
      if (at < out.length) this.starve(out, at);
      this.reported += out.length;
      if (!this.running || this.reported >= REPORT_SECONDS * sampleRate) this.report();
    }
    for (const channel of outputs[0]?.slice(1) ?? []) channel.set(out);
    return true;
  }

  /**
   * Nothing is left: let the wave fall from where it stands, and ask for more to wait before going on.
   * @param {Float32Array} out @param {number} at
   */
  starve(out, at) {
    this.running = false;
    for (let i = at; i < out.length; i++) out[i] = this.last * (1 - (i - at + 1) / (out.length - at));
    if (!this.ended.has(this.item)) this.prime = Math.min(PRIME_MOST, this.prime + PRIME_STEP);
  }
}

registerProcessor("playback", Playback);
