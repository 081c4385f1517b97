/** The runtime's trace: which node fired when, and the moments of each turn. */

/** @typedef {import("./protocol.js").RealtimeEvent} RealtimeEvent */
/** @typedef {import("./protocol.js").TraceRow} TraceRow */
/** @typedef {import("./protocol.js").TurnMarks} TurnMarks */

/**
 * @typedef {Object} Firing
 * @property {number} at ms since the session was opened
 * @property {string} component
 * @property {string} node the use of the component that fired
 * @property {string} walk
 * @property {number} batch how many requests ran together
 * @property {number} ms
 */

/**
 * @typedef {Object} Moment
 * @property {string} name
 * @property {number} ms after the turn's first moment
 */

/**
 * @typedef {Object} Turn
 * @property {string} response
 * @property {Moment[]} moments in order of time, the first at 0
 * @property {number} total ms from the first moment to the last
 */

/** Names of the moments, in the order in which they usually come. */
export const MOMENTS = {
  speech_end: "speech end",
  prepared: "prepared",
  endpoint: "endpoint",
  transcript: "transcript",
  first_token: "first token",
  first_clause: "first clause",
  first_sample: "first sample",
  heard: "heard",
};

/** @param {RealtimeEvent} event a `mstar.trace` @returns {Firing[]} */
export function firings(event) {
  return /** @type {TraceRow[]} */ (event["records"]).map(
    ([at, , , component, walk, batch, ms, , , , node]) => ({ at, component, node, walk, batch, ms }),
  );
}

/** @param {TurnMarks} event a `mstar.turn` @returns {Turn | null} null if it has no length */
export function turnOf(event) {
  const order = Object.keys(MOMENTS);
  const known = Object.entries(event.marks)
    .map(([name, mark]) => ({ name, ms: mark.ms }))
    .sort((a, b) => a.ms - b.ms || order.indexOf(a.name) - order.indexOf(b.name));
  const first = known[0];
  const last = known.at(-1);
  if (!first || !last || known.length < 2) return null;
  return {
    response: event.response_id,
    moments: known.map(({ name, ms }) => ({ name, ms: ms - first.ms })),
    total: last.ms - first.ms,
  };
}

/** @param {string} name of a moment */
export function title(name) {
  return /** @type {Record<string, string>} */ (MOMENTS)[name] ?? name.replaceAll("_", " ");
}
