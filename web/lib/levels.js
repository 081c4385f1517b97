/** Level meters: bars that follow what goes in and what comes out, drawn once a frame while a call runs. */

import { loudness } from "./sound.js";

const FALL = 0.88; // of the bar's length a frame, so that it sinks calmly

export class Levels {
  /** @param {(input: number, output: number) => void} show called once a frame with 0 … 1 each */
  constructor(show) {
    this.show = show;
    /** @type {import("./protocol.js").Transport | null} */
    this.transport = null;
    this.scratch = new Float32Array(1024);
    this.input = 0;
    this.output = 0;
    this.frame = 0;
  }

  /** @param {import("./protocol.js").Transport | null} transport */
  follow(transport) {
    this.transport = transport;
    cancelAnimationFrame(this.frame);
    if (transport) {
      this.step();
    } else {
      this.input = this.output = 0;
      this.show(0, 0);
    }
  }

  step() {
    this.input = this.next(this.input, this.transport?.input ?? null);
    this.output = this.next(this.output, this.transport?.output ?? null);
    this.show(this.input, this.output);
    this.frame = requestAnimationFrame(() => this.step());
  }

  /** @param {number} before @param {AnalyserNode | null} analyser */
  next(before, analyser) {
    const now = analyser ? loudness(analyser, this.scratch) : 0;
    return Math.max(now, before * FALL);
  }
}
