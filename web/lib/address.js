/** Addresses of the server, and its refusals in words. */

/** @typedef {import("./protocol.js").Dial} Dial */
/** @typedef {import("./protocol.js").Closed} Closed */

/**
 * @param {Dial} dial @param {string} path
 * @returns {URL}
 */
export function addressOf(dial, path) {
  const url = new URL(path, dial.origin);
  if (dial.model) url.searchParams.set("model", dial.model);
  url.searchParams.set("events", "ext");
  return url;
}

/** @param {string} key @returns {Record<string, string>} */
export function bearer(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/**
 * Why the server said no.
 * @param {Response} response @returns {Promise<Closed>}
 */
export async function refusal(response) {
  const after = Number(response.headers.get("Retry-After")) || undefined;
  const said = await response.json().then(
    (body) => String(body?.error?.message ?? ""),
    () => "",
  );
  switch (response.status) {
    case 401:
      return { text: "This server wants an API key. Enter it in the settings.", retry: false, unauthorised: true };
    case 403:
      return { text: said || "This server does not take calls from this page.", retry: false };
    case 429:
    case 503: {
      const text = `The server is busy${said ? `: ${said}` : "."}`;
      return after === undefined ? { text, retry: true } : { text, retry: true, after };
    }
    default:
      return { text: said || `The server answered with status ${response.status}.`, retry: response.status >= 500 };
  }
}
