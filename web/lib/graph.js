/** Draws a Walk Graph as SVG and lights its nodes as they fire. */

import { layout } from "./graph-layout.js";

/** @typedef {import("./protocol.js").WalkGraph} WalkGraph */
/** @typedef {import("./trace.js").Firing} Firing */

const SVG = "http://www.w3.org/2000/svg";
const LIT_MS = 120;
const SPREAD_MS = 400;

export class GraphDrawing {
  /** @param {HTMLElement} place @param {WalkGraph} graph */
  constructor(place, graph) {
    this.place = place;
    this.graph = graph;
    /** Boxes by what the trace calls their nodes. @type {Map<string, {key: string, group: SVGElement, label: SVGElement}[]>} */
    this.nodes = new Map();
    /** Firings of each box so far. @type {Map<string, number>} */
    this.counts = new Map();
    /** Milliseconds of each box's newest firing. @type {Map<string, number>} */
    this.times = new Map();
    this.width = 0;
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(place);
    this.draw();
  }

  draw() {
    const width = Math.floor(this.place.clientWidth);
    if (width === this.width || width < 1) return;
    this.width = width;
    this.nodes.clear();
    const { height, lanes, nodes, sources, paths } = layout(this.graph, width - 2);
    const svg = make("svg", { viewBox: `-1 -1 ${width} ${height + 2}`, width, height: height + 2, role: "img" });
    svg.setAttribute("aria-label", this.summary());
    svg.append(arrowHead());
    for (const { x, y, w, h } of lanes) svg.append(make("rect", { x, y, width: w, height: h, rx: 12, class: "lane" }));
    for (const { d, kind } of paths) svg.append(make("path", { d, class: kind, "marker-end": "url(#arrow)" }));
    for (const lane of lanes) svg.append(laneLabel(lane));
    for (const source of sources) svg.append(drawSource(source));
    for (const node of nodes) svg.append(this.drawNode(node));
    this.place.replaceChildren(svg);
  }

  summary() {
    const lanes = this.graph.partitions.map(({ name, walks }) => {
      const nodes = new Set(walks.flatMap((walk) => walk.nodes.map((node) => node.name)));
      return `${name}: ${[...nodes].join(", ")}`;
    });
    return `Walk Graph of ${this.graph.name}. ${lanes.join("; ")}.`;
  }

  /** @param {import("./graph-layout.js").NodeBox} node */
  drawNode(node) {
    const group = make("g", { class: node.loops ? "node loops" : "node" });
    const box = make("rect", { x: node.x, y: node.y, width: node.w, height: node.h, rx: 8 });
    const name = make("text", { x: node.x + node.w / 2, y: node.y + 17, class: "name" });
    name.textContent = node.name;
    const label = make("text", { x: node.x + node.w / 2, y: node.y + 31, class: "count" });
    label.textContent = this.counted(node.key);
    group.append(box, name, label);
    for (const firing of node.firings) {
      const key = `${firing.walk}/${firing.node}`;
      this.nodes.set(key, [...(this.nodes.get(key) ?? []), { key: node.key, group, label }]);
    }
    return group;
  }

  /** Show what fired, spread as it happened. @param {Firing[]} fired */
  light(fired) {
    const first = fired[0]?.at ?? 0;
    for (const firing of fired) {
      setTimeout(() => this.flash(firing), Math.max(0, Math.min(SPREAD_MS, firing.at - first)));
    }
  }

  /** @param {Firing} firing */
  flash({ node, walk, ms }) {
    for (const { key, group, label } of this.nodes.get(`${walk}/${node}`) ?? []) {
      this.counts.set(key, (this.counts.get(key) ?? 0) + 1);
      this.times.set(key, ms);
      label.textContent = this.counted(key);
      group.classList.add("lit");
      setTimeout(() => group.classList.remove("lit"), LIT_MS);
    }
  }

  /** @param {string} key of a box */
  counted(key) {
    const count = this.counts.get(key);
    const ms = this.times.get(key);
    if (!count || ms === undefined) return "idle";
    return `${count} × ${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  }

  remove() {
    this.observer.disconnect();
    this.place.replaceChildren();
  }
}

/** @param {import("./graph-layout.js").LaneBox} lane */
function laneLabel(lane) {
  const group = make("g", { class: "label" });
  const name = make("text", { x: lane.x + 12, y: lane.y + 21 });
  name.textContent = lane.name;
  const emits = make("text", { x: lane.x + lane.w - 12, y: lane.y + 21, class: "emits" });
  emits.textContent = lane.emits;
  group.append(name, emits);
  return group;
}

/** @param {import("./graph-layout.js").SourceBox} source */
function drawSource(source) {
  const group = make("g", { class: "source" });
  const name = make("text", { x: source.x + source.w / 2, y: source.y + 17, class: "name" });
  name.textContent = source.name;
  group.append(make("rect", { x: source.x, y: source.y, width: source.w, height: source.h, rx: source.h / 2 }), name);
  return group;
}

function arrowHead() {
  const defs = make("defs", {});
  const marker = make("marker", {
    id: "arrow",
    viewBox: "0 0 8 8",
    refX: 7,
    refY: 4,
    markerWidth: 7,
    markerHeight: 7,
    orient: "auto-start-reverse",
  });
  marker.append(make("path", { d: "M0 1L7 4L0 7z" }));
  defs.append(marker);
  return defs;
}

/** @param {string} tag @param {Record<string, string | number>} attributes */
function make(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}
