/** The microphone end of a WebSocket call: chunks of 24 kHz Int16. */

const RATE = 24000;

export class Recorder {
  /**
   * @param {MediaStream} microphone
   * @param {(pcm: ArrayBuffer) => void} heard called with every 30 ms of sound
   * @returns {Promise<Recorder>}
   */
  static async open(microphone, heard) {
    let context = new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
    let source;
    try {
      source = context.createMediaStreamSource(microphone);
    } catch (why) {
      // Some browsers do not convert a microphone's rate; the worklet then does.
      if (!(why instanceof DOMException) || why.name !== "NotSupportedError") throw why;
      await context.close();
      context = new AudioContext({ latencyHint: "interactive" });
      source = context.createMediaStreamSource(microphone);
    }
    await context.audioWorklet.addModule(new URL("./worklets/capture.js", import.meta.url));
    await context.resume();
    return new Recorder(context, source, heard);
  }

  /** @param {AudioContext} context @param {MediaStreamAudioSourceNode} source @param {(pcm: ArrayBuffer) => void} heard */
  constructor(context, source, heard) {
    this.context = context;
    this.source = source;
    this.analyser = new AnalyserNode(context, { fftSize: 1024 });
    this.node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
    this.node.port.onmessage = ({ data }) => heard(data);
    source.connect(this.analyser);
    source.connect(this.node);
  }

  close() {
    this.node.port.onmessage = null;
    this.source.disconnect();
    void this.context.close();
  }
}
