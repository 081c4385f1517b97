/** Whose turn it is, in a word, from the server's events. */

/** @typedef {"listening" | "hearing" | "thinking" | "speaking"} Phase */

/**
 * @param {Phase} before @param {import("./protocol.js").RealtimeEvent} event
 * @returns {Phase}
 */
export function phaseAfter(before, event) {
  switch (event.type) {
    case "input_audio_buffer.speech_started":
      return "hearing";
    case "input_audio_buffer.speech_stopped":
    case "response.created":
      return "thinking";
    case "response.done":
      return before === "thinking" ? "listening" : before;
    case "output_audio_buffer.started":
      return before === "hearing" ? before : "speaking";
    case "output_audio_buffer.stopped":
    case "output_audio_buffer.cleared":
      return before === "speaking" ? "listening" : before;
    default:
      return before;
  }
}

/**
 * The same for what is played.
 * @param {Phase} before @param {import("./protocol.js").Playing} playing
 * @returns {Phase}
 */
export function phaseWhile(before, playing) {
  const ended = playing.total !== null && playing.played >= playing.total - 1;
  if (ended) return before === "speaking" ? "listening" : before;
  return before === "hearing" ? before : "speaking";
}
