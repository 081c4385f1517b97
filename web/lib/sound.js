/** Sound between typed arrays and the text of JSON; levels. */

/** Int16 bytes (any length) → base64. @param {ArrayBuffer} buffer @returns {string} */
export function toBase64(buffer) {
  const bytes = new Uint8Array(buffer);
  let binary = "";
  for (let i = 0; i < bytes.length; i += 0x8000) {
    binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  }
  return btoa(binary);
}

/** base64 → bytes. @param {string} text @returns {ArrayBuffer} */
export function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes.buffer;
}

/**
 * Loudness of what an analyser sees now, 0 (−60 dBFS and below) … 1 (0 dBFS).
 * @param {AnalyserNode} analyser @param {Float32Array<ArrayBuffer>} scratch `analyser.fftSize` values
 * @returns {number}
 */
export function loudness(analyser, scratch) {
  analyser.getFloatTimeDomainData(scratch);
  let sum = 0;
  for (const sample of scratch) sum += sample * sample;
  const db = 10 * Math.log10(sum / scratch.length + 1e-12);
  return Math.max(0, Math.min(1, 1 + db / 60));
}
