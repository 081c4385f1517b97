/** The voice chat page: joins the controls, the call and the drawings. */

import { bearer } from "./lib/address.js";
import { Call } from "./lib/call.js";
import { Conversation } from "./lib/conversation.js";
import { GraphDrawing } from "./lib/graph.js";
import { Levels } from "./lib/levels.js";
import { devices, openMicrophone, speakerChoice } from "./lib/microphone.js";
import { phaseAfter, phaseWhile } from "./lib/phase.js";
import { firings, turnOf } from "./lib/trace.js";
import { Transcript } from "./lib/transcript.js";
import { Waterfall } from "./lib/waterfall.js";

/** @typedef {import("./lib/protocol.js").RealtimeEvent} RealtimeEvent */
/** @typedef {import("./lib/protocol.js").Closed} Closed */

/**
 * @template {HTMLElement} T
 * @param {string} id @param {new () => T} kind
 * @returns {T}
 */
function element(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new TypeError(`#${id} is no ${kind.name}`);
  return found;
}

const page = {
  start: element("start", HTMLButtonElement),
  mute: element("mute", HTMLButtonElement),
  interrupt: element("interrupt", HTMLButtonElement),
  status: element("status", HTMLElement),
  model: element("model", HTMLElement),
  hint: element("hint", HTMLElement),
  problem: element("problem", HTMLElement),
  input: element("input-level", HTMLElement),
  output: element("output-level", HTMLElement),
  write: element("write", HTMLFormElement),
  text: element("text", HTMLInputElement),
  settings: element("settings", HTMLDetailsElement),
  turns: element("turns", HTMLSelectElement),
  microphone: element("microphone", HTMLSelectElement),
  speaker: element("speaker", HTMLSelectElement),
  speakerField: element("speaker-field", HTMLElement),
  key: element("key", HTMLInputElement),
  noTurns: element("no-turns", HTMLElement),
  noGraph: element("no-graph", HTMLElement),
  graph: element("graph", HTMLElement),
};

const PHASES = { listening: "Listening", hearing: "Hearing you", thinking: "Thinking", speaking: "Speaking" };
const model = new URLSearchParams(location.search).get("model") ?? "";

const conversation = new Conversation();
const transcript = new Transcript(element("log", HTMLElement), element("scroller", HTMLElement));
const waterfall = new Waterfall(element("waterfall", HTMLOListElement));
const levels = new Levels((input, output) => {
  showLevel(page.input, input);
  showLevel(page.output, output);
  page.start.style.setProperty("--level", input.toFixed(3));
});

/** @type {Call | null} */
let call = null;
/** @type {GraphDrawing | null} */
let drawing = null;
/** @type {import("./lib/phase.js").Phase} */
let phase = "listening";
/** Whether a call is being begun: a second press then does nothing. */
let beginning = false;

// ------------------------------------------------------------------------------------------------ calls

/** @param {boolean} aloud with the microphone */
async function begin(aloud) {
  if (beginning) return;
  beginning = true;
  say("");
  show("connecting", aloud ? "Asking for the microphone" : "Connecting");
  try {
    const microphone = aloud ? await openMicrophone(page.microphone.value) : null;
    const muted = isMuted();
    call?.stop();
    call = new Call(wishes(), microphone, owner);
    if (aloud && muted) mute(true); // who changes a setting is not heard again by that
    call.start();
    void listDevices();
  } catch (why) {
    say(why instanceof Error ? why.message : String(why));
    show("idle", "Ready");
  } finally {
    beginning = false;
  }
}

/** @returns {import("./lib/call.js").Wishes} */
function wishes() {
  return {
    origin: location.origin,
    model,
    key: page.key.value.trim(),
    transport: chosenTransport(),
    turns: page.turns.value === "semantic_vad" ? "semantic_vad" : "server_vad",
    speaker: page.speaker.value,
  };
}

/** @returns {"webrtc" | "websocket"} */
function chosenTransport() {
  const chosen = document.querySelector('input[name="transport"]:checked');
  return chosen instanceof HTMLInputElement && chosen.value === "websocket" ? "websocket" : "webrtc";
}

/** @type {import("./lib/call.js").Owner} */
const owner = {
  state(state) {
    page.hint.hidden = true;
    levels.follow(state === "open" ? (call?.transport ?? null) : null);
    if (state !== "open") for (const entry of conversation.close()) transcript.show(entry);
    if (state === "connecting") show("connecting", "Connecting");
    if (state === "idle") {
      call = null;
      show("idle", "Ready");
    }
    if (state === "open") {
      say("");
      phase = "listening";
      showPhase();
    }
    controls();
  },

  event(event) {
    const entry = conversation.apply(event);
    if (entry) transcript.show(entry);
    phase = phaseAfter(phase, event);
    showPhase();
    if (event.type === "session.created") void loadGraph(String(event["session"].model));
    if (event.type === "mstar.trace") drawing?.light(firings(event));
    if (event.type === "mstar.turn") showTurn(event);
    if (event.type === "error") say(`The server did not accept something: ${event["error"].message}`);
  },

  playing(playing) {
    const entry = conversation.play(playing);
    if (entry) transcript.show(entry);
    phase = phaseWhile(phase, playing);
    showPhase();
  },

  lost(why, seconds) {
    say(why.text);
    if (seconds !== null) show("waiting", `Trying again in ${Math.max(1, Math.round(seconds))} s`);
    if (why.unauthorised) {
      page.settings.open = true;
      page.key.focus();
    }
  },

  replay: () => conversation.replay(),
};

/** @param {RealtimeEvent} event */
function showTurn(event) {
  const turn = turnOf(/** @type {import("./lib/protocol.js").TurnMarks} */ (event));
  if (!turn) return;
  page.noTurns.hidden = true;
  waterfall.add(turn);
}

/** @param {string} name of the family */
async function loadGraph(name) {
  page.model.textContent = name;
  if (drawing?.graph.name === name) return;
  try {
    const response = await fetch(`/v1/graph/${encodeURIComponent(name)}`, { headers: bearer(page.key.value.trim()) });
    if (!response.ok) return;
    const graph = /** @type {import("./lib/protocol.js").WalkGraph} */ (await response.json());
    drawing?.remove();
    page.noGraph.hidden = true;
    drawing = new GraphDrawing(page.graph, graph);
  } catch {
    page.noGraph.hidden = false; // the call goes on without the drawing
  }
}

// ------------------------------------------------------------------------------------------------ showing

/** @param {string} state @param {string} words */
function show(state, words) {
  page.status.dataset["state"] = state;
  if (page.status.textContent !== words) page.status.textContent = words;
}

function showPhase() {
  if (call?.state !== "open") return;
  const muted = phase === "listening" && isMuted();
  const words = call.microphone === null && phase === "listening" ? "Connected" : PHASES[phase];
  show(phase, muted ? "Muted" : words);
  page.interrupt.disabled = phase !== "speaking" && phase !== "thinking";
}

/** @param {string} text a problem; "" = there is none */
function say(text) {
  page.problem.textContent = text;
  page.problem.hidden = !text;
}

function controls() {
  const aloud = call !== null && call.microphone !== null;
  page.start.textContent = aloud ? "Stop" : "Start talking";
  page.start.dataset["live"] = String(aloud);
  page.mute.disabled = !aloud;
  if (!aloud) {
    page.mute.setAttribute("aria-pressed", "false");
    page.mute.textContent = "Mute";
  }
  if (call?.state !== "open") page.interrupt.disabled = true;
}

/** @param {HTMLElement} meter @param {number} level 0 … 1 */
function showLevel(meter, level) {
  meter.style.setProperty("--level", level.toFixed(3));
  const percent = String(Math.round(level * 20) * 5);
  if (meter.getAttribute("aria-valuenow") !== percent) meter.setAttribute("aria-valuenow", percent);
}

async function listDevices() {
  const { microphones, speakers } = await devices();
  options(page.microphone, microphones);
  options(page.speaker, speakers);
  page.speakerField.hidden = !speakerChoice || speakers.length === 0;
}

/** @param {HTMLSelectElement} select @param {MediaDeviceInfo[]} list */
function options(select, list) {
  const chosen = select.value;
  const named = list.filter((device) => device.label).map((device) => new Option(device.label, device.deviceId));
  select.replaceChildren(new Option("System default", ""), ...named);
  select.value = named.some((option) => option.value === chosen) ? chosen : "";
}

// ------------------------------------------------------------------------------------------------ controls

page.start.addEventListener("click", () => {
  if (call?.microphone) {
    call.stop();
    say("");
  } else {
    void begin(true);
  }
});

page.mute.addEventListener("click", () => {
  mute(!isMuted());
  showPhase();
});

function isMuted() {
  return page.mute.getAttribute("aria-pressed") === "true";
}

/** @param {boolean} muted */
function mute(muted) {
  for (const track of call?.microphone?.getAudioTracks() ?? []) track.enabled = !muted;
  page.mute.setAttribute("aria-pressed", String(muted));
}

page.interrupt.addEventListener("click", () => call?.interrupt());

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !page.interrupt.disabled) call?.interrupt();
});

page.write.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = page.text.value.trim();
  if (!text) return;
  page.text.value = "";
  if (!call) await begin(false);
  await call?.write(text);
});

element("fields", HTMLFormElement).addEventListener("submit", (event) => event.preventDefault());

page.microphone.addEventListener("change", async () => {
  if (!call?.microphone) return;
  try {
    await call.useMicrophone(await openMicrophone(page.microphone.value));
  } catch (why) {
    say(why instanceof Error ? why.message : String(why));
  }
});

page.speaker.addEventListener("change", () => void call?.transport?.useSpeaker(page.speaker.value));

for (const input of document.querySelectorAll('input[name="transport"], #turns')) {
  input.addEventListener("change", () => {
    if (call) void begin(call.microphone !== null);
  });
}

navigator.mediaDevices?.addEventListener?.("devicechange", () => void listDevices());
window.addEventListener("pagehide", () => call?.stop());

void listDevices();
void firstModel();

/** Show what will answer before anybody has called. */
async function firstModel() {
  try {
    const response = await fetch("/v1/models", { headers: bearer(page.key.value.trim()) });
    if (!response.ok) return;
    const list = await response.json();
    await loadGraph(model || String(list.data[0].id));
  } catch {
    // shown when a call begins
  }
}
