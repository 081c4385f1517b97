/** The robot's page: what its camera sees, where it is to go, what the world model imagines, and how it goes. */

import { draw } from "./lib/pixels.js";
import { drawPath, Energies } from "./lib/plan.js";

/** @typedef {import("./lib/pixels.js").Pixels} Pixels */
/**
 * What the agent tells.
 * @typedef {{ type: "world", name: string, unit: string, near: number, steps: number }
 *   | { type: "running", on: boolean }
 *   | ({ type: "goal", number: number } & Pixels)
 *   | ({ type: "look", step: number, distance: number } & Pixels)
 *   | { type: "plan", chunk: number, step: number, path: [number, number][], energy: number, iterations: number,
 *       took_ms: number, age_ms: number, actions: number[][] }
 *   | ({ type: "imagined", chunk: number, actions: number } & Pixels)
 *   | { type: "end", reached: boolean, steps: number, distance: number }} Told
 */

const AGAIN_MS = 2000;
const TRIPS = 8;

/**
 * @template {Element} T
 * @param {string} id @param {new () => T} kind
 * @returns {T}
 */
function element(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new TypeError(`#${id} is no ${kind.name}`);
  return found;
}

const page = {
  world: element("world", HTMLElement),
  status: element("status", HTMLElement),
  problem: element("problem", HTMLElement),
  camera: element("camera", HTMLCanvasElement),
  path: element("path", SVGElement),
  goal: element("goal", HTMLCanvasElement),
  distance: element("distance", HTMLElement),
  goalNumber: element("goal-number", HTMLElement),
  go: element("go", HTMLButtonElement),
  another: element("new", HTMLButtonElement),
  noFrames: element("no-frames", HTMLElement),
  frames: element("frames", HTMLOListElement),
  energyNow: element("energy-now", HTMLElement),
  iterations: element("iterations", HTMLElement),
  step: element("step", HTMLElement),
  took: element("took", HTMLElement),
  age: element("age", HTMLElement),
  action: element("action", HTMLElement),
  tally: element("tally", HTMLElement),
  trips: element("trips", HTMLOListElement),
};

const energies = new Energies(element("energy", SVGElement));
const world = { unit: "", steps: 0 };
const tally = { goals: 0, reached: 0 };
let running = false;
/** The plan whose frames are shown. */
let chunk = 0;
/** @type {WebSocket | null} */
let socket = null;

// ------------------------------------------------------------------------------------------------ connection

function connect() {
  const url = new URL("watch", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  socket = new WebSocket(url);
  socket.onopen = () => say("");
  socket.onmessage = ({ data }) => take(JSON.parse(data));
  socket.onclose = () => {
    socket = null;
    show("idle", "Not connected");
    for (const button of [page.go, page.another]) button.disabled = true;
    say("There is no robot at this address. `make robot` starts one, with its page.");
    setTimeout(connect, AGAIN_MS);
  };
}

/** @param {"start" | "stop" | "goal"} what */
function ask(what) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(what);
}

// ------------------------------------------------------------------------------------------------ what is told

/** @param {Told} told */
function take(told) {
  switch (told.type) {
    case "world":
      Object.assign(world, { unit: told.unit, steps: told.steps });
      page.world.textContent = `${told.name} · a goal is reached within ${told.near} ${told.unit}, in ${told.steps} steps`;
      for (const button of [page.go, page.another]) button.disabled = false;
      break;
    case "running":
      running = told.on;
      page.go.textContent = running ? "Stop" : "Start";
      page.go.dataset["live"] = String(running);
      show(running ? "hearing" : "waiting", running ? "Acting" : "Holding");
      break;
    case "goal":
      draw(page.goal, told);
      page.goalNumber.textContent = `no. ${told.number}`;
      page.path.replaceChildren();
      break;
    case "look":
      draw(page.camera, told);
      page.distance.textContent = `${told.distance.toPrecision(2)} ${world.unit} off`;
      break;
    case "plan":
      showPlan(told);
      break;
    case "imagined":
      showImagined(told);
      break;
    case "end":
      ended(told);
      break;
  }
}

/** @param {Extract<Told, { type: "plan" }>} plan */
function showPlan(plan) {
  drawPath(page.path, plan.path);
  energies.put(plan.energy, plan.step === 1);
  page.energyNow.textContent = plan.energy.toFixed(3);
  page.iterations.textContent = String(plan.iterations);
  page.step.textContent = `${plan.step} of at most ${world.steps}`;
  page.took.textContent = `${plan.took_ms.toFixed(0)} ms`;
  page.age.textContent = `${plan.age_ms.toFixed(0)} ms`;
  page.action.textContent = (plan.actions[0] ?? []).map((value) => value.toFixed(2)).join(", ");
  chunk = plan.chunk;
}

/** @param {Extract<Told, { type: "imagined" }>} seen */
function showImagined(seen) {
  if (seen.chunk < chunk) return;
  page.noFrames.hidden = true;
  const number = seen.actions;
  while (page.frames.children.length < number) page.frames.append(frame(page.frames.children.length + 1));
  const item = page.frames.children[number - 1];
  const canvas = item?.querySelector("canvas");
  if (canvas) draw(canvas, seen);
}

/** @param {number} number */
function frame(number) {
  const item = document.createElement("li");
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Imagined after action ${number}`);
  const caption = document.createElement("p");
  caption.textContent = number === 1 ? "after 1 action" : `after ${number} actions`;
  item.append(canvas, caption);
  return item;
}

/** @param {Extract<Told, { type: "end" }>} trip */
function ended(trip) {
  tally.goals += 1;
  tally.reached += Number(trip.reached);
  page.tally.textContent = `${tally.reached} of ${tally.goals}`;
  const item = document.createElement("li");
  const how = document.createElement("strong");
  how.textContent = trip.reached ? "Reached" : "Not reached";
  const steps = trip.steps === 1 ? "1 step" : `${trip.steps} steps`;
  item.append(how, ` in ${steps}, ${trip.distance.toPrecision(2)} ${world.unit} off`);
  page.trips.prepend(item);
  while (page.trips.children.length > TRIPS) page.trips.lastElementChild?.remove();
}

// ------------------------------------------------------------------------------------------------ words

/** @param {string} state @param {string} words */
function show(state, words) {
  page.status.dataset["state"] = state;
  page.status.textContent = words;
}

/** @param {string} problem */
function say(problem) {
  page.problem.textContent = problem;
  page.problem.hidden = problem === "";
}

// ------------------------------------------------------------------------------------------------ controls

page.go.addEventListener("click", () => ask(running ? "stop" : "start"));
page.another.addEventListener("click", () => ask("goal"));
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.code === "Space" && !(event.target instanceof HTMLButtonElement)) {
    event.preventDefault();
    ask(running ? "stop" : "start");
  } else if (event.key.toLowerCase() === "n") {
    ask("goal");
  }
});

connect();
