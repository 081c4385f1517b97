/** The loudspeaker end of a WebSocket call: an AudioWorklet that plays items and counts what was heard. */

import { Ledger } from "./ledger.js";

const RATE = 24000;

export class Player {
  /**
   * @param {string} speaker device id; "" = the system's
   * @param {(playing: import("./protocol.js").Playing) => void} playing called as items are heard
   * @returns {Promise<Player>}
   */
  static async open(speaker, playing) {
    const context = new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
    await context.audioWorklet.addModule(new URL("./worklets/playback.js", import.meta.url));
    const player = new Player(context, playing);
    if (speaker) await player.useSpeaker(speaker);
    await context.resume();
    return player;
  }

  /** @param {AudioContext} context @param {(playing: import("./protocol.js").Playing) => void} playing */
  constructor(context, playing) {
    this.context = context;
    this.playing = playing;
    this.ledger = new Ledger(RATE);
    this.node = new AudioWorkletNode(context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
    this.analyser = new AnalyserNode(context, { fftSize: 1024 });
    this.node.connect(this.analyser).connect(context.destination);
    /** Those who wait for a clear to be done. @type {((heard: {item: string, heard: number}[]) => void)[]} */
    this.clearing = [];
    this.node.port.onmessage = ({ data }) => this.report(data);
  }

  /** @param {string} item @param {ArrayBuffer} pcm Int16 at 24 kHz */
  put(item, pcm) {
    this.ledger.receive(item, pcm.byteLength / 2);
    this.node.port.postMessage({ put: item, pcm }, [pcm]);
  }

  /** @param {string} item */
  end(item) {
    this.ledger.end(item);
    this.node.port.postMessage({ end: item });
  }

  /**
   * Stop within 8 ms and drop the rest.
   * @returns {Promise<{item: string, heard: number}[]>} items that were cut, with the ms heard of each
   */
  clear() {
    const waiting = new Promise((resolve) => this.clearing.push(resolve));
    this.node.port.postMessage({ clear: true });
    if (this.context.state !== "running") this.cut(); // it will not answer before it runs again
    return waiting;
  }

  /** Settle what was cut off. */
  cut() {
    const latency = Math.round((this.context.outputLatency || 0) * 1000); // rendered, but not in the air yet
    const cut = this.ledger.unheard().map(({ item, heard }) => ({ item, heard: Math.max(0, heard - latency) }));
    for (const { item } of cut) this.ledger.forget(item);
    for (const resolve of this.clearing.splice(0)) resolve(cut.splice(0));
  }

  /** @param {{item?: string, played: number, ended?: boolean, cleared?: string}} data */
  report(data) {
    if (data.cleared !== undefined) {
      if (data.cleared) this.ledger.play(data.cleared, data.played);
      this.cut();
    } else if (data.item) {
      this.ledger.play(data.item, data.played);
      this.playing(this.ledger.progress(data.item));
      if (data.ended) this.ledger.forget(data.item);
    }
  }

  /** @param {string} device */
  async useSpeaker(device) {
    // Not in every browser, and not in TypeScript's DOM library.
    const context = /** @type {AudioContext & {setSinkId?: (id: string) => Promise<void>}} */ (this.context);
    await context.setSinkId?.(device);
  }

  close() {
    this.cut();
    this.node.port.onmessage = null;
    this.node.disconnect();
    void this.context.close();
  }
}
