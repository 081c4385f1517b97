/** The microphone as 24 kHz Int16 chunks of 30 ms, posted to the page. */

import { Resampler } from "./resample.js";

const RATE = 24000;
const CHUNK = 720;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = sampleRate === RATE ? null : new Resampler(sampleRate, RATE);
    this.chunk = new Int16Array(CHUNK);
    this.filled = 0;
  }

  /** @param {Float32Array[][]} inputs @returns {boolean} */
  process(inputs) {
    const given = inputs[0]?.[0];
    if (!given) return true; // the source is not connected (yet)
    const samples = this.resampler ? this.resampler.feed(given) : given;
    for (const sample of samples) {
      this.chunk[this.filled++] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
      if (this.filled === CHUNK) {
        this.port.postMessage(this.chunk.buffer, [this.chunk.buffer]);
        this.chunk = new Int16Array(CHUNK);
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
