/** Sample rate conversion of a stream by a windowed sinc, one table of taps per phase. */

const CROSSINGS = 16;

/** @param {number} a @param {number} b @returns {number} */
const gcd = (a, b) => (b ? gcd(b, a % b) : a);

export class Resampler {
  /** @param {number} from Hz @param {number} to Hz */
  constructor(from, to) {
    const common = gcd(from, to);
    this.up = to / common;
    this.down = from / common;
    this.half = Math.ceil(CROSSINGS * Math.max(1, this.down / this.up));
    this.bank = filterBank(this.up, this.down, this.half);
    /** Input from sample `origin` on. @type {Float32Array} */
    this.buffer = new Float32Array(this.half);
    this.origin = -this.half;
    this.given = 0;
  }

  /**
   * The samples that are determined by now.
   * @param {Float32Array} input @returns {Float32Array}
   */
  feed(input) {
    const joined = new Float32Array(this.buffer.length + input.length);
    joined.set(this.buffer);
    joined.set(input, this.buffer.length);
    const last = this.origin + joined.length - this.half; // first input instant that is not determined yet
    const end = Math.max(this.given, Math.ceil((last * this.up) / this.down));
    const out = new Float32Array(end - this.given);
    for (let k = 0; k < out.length; k++) {
      const position = (this.given + k) * this.down;
      const whole = Math.floor(position / this.up);
      const taps = /** @type {Float32Array} */ (this.bank[position % this.up]);
      const first = whole - this.half + 1 - this.origin;
      let sum = 0;
      for (let j = 0; j < taps.length; j++) {
        sum += /** @type {number} */ (taps[j]) * (joined[first + j] ?? 0);
      }
      out[k] = sum;
    }
    this.given = end;
    const needed = Math.floor((end * this.down) / this.up) - this.half + 1 - this.origin;
    const drop = Math.max(0, Math.min(joined.length, needed));
    this.buffer = joined.slice(drop);
    this.origin += drop;
    return out;
  }
}

/**
 * @param {number} up @param {number} down @param {number} half
 * @returns {Float32Array[]} [up][2 · half], gain 1 at 0 Hz in every phase
 */
function filterBank(up, down, half) {
  const cutoff = 0.95 * Math.min(1, up / down);
  return Array.from({ length: up }, (_, phase) => {
    const taps = new Float32Array(2 * half);
    let sum = 0;
    for (let j = 0; j < taps.length; j++) {
      const t = j - half + 1 - phase / up;
      const x = Math.PI * cutoff * t;
      const sinc = x === 0 ? 1 : Math.sin(x) / x;
      const window = 0.5 * (1 + Math.cos((Math.PI * t) / (half + 1)));
      taps[j] = sinc * window;
      sum += sinc * window;
    }
    return taps.map((tap) => tap / sum);
  });
}
