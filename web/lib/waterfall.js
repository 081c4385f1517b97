/** Draws the latency of every turn: a bar of its stages on one scale, with numbers. */

import { title } from "./trace.js";

/** @typedef {import("./trace.js").Turn} Turn */

const MOST_TURNS = 50;

export class Waterfall {
  /** @param {HTMLElement} list an ordered list, newest first */
  constructor(list) {
    this.list = list;
    /** @type {{turn: Turn, row: HTMLLIElement}[]} */
    this.rows = [];
    this.count = 0;
  }

  /** @param {Turn} turn */
  add(turn) {
    this.count += 1;
    const row = document.createElement("li");
    row.append(heading(this.count, turn), bar(turn), numbers(turn));
    this.list.prepend(row);
    this.rows.unshift({ turn, row });
    for (const old of this.rows.splice(MOST_TURNS)) old.row.remove();
    const longest = Math.max(...this.rows.map((each) => each.turn.total), 1);
    for (const each of this.rows) each.row.style.setProperty("--share", String(each.turn.total / longest));
  }
}

/** @param {number} number @param {Turn} turn */
function heading(number, turn) {
  const line = document.createElement("p");
  line.className = "turn";
  const name = document.createElement("span");
  name.textContent = `Turn ${number}`;
  const total = document.createElement("strong");
  total.textContent = `${Math.round(turn.total)} ms`;
  line.append(name, total);
  return line;
}

/** @param {Turn} turn */
function bar(turn) {
  const track = document.createElement("div");
  track.className = "bar";
  track.setAttribute("aria-hidden", "true"); // the numbers say the same
  turn.moments.slice(1).forEach((moment, index) => {
    const before = turn.moments[index]?.ms ?? 0;
    const part = document.createElement("span");
    part.dataset["moment"] = moment.name;
    part.style.flexGrow = String(Math.max(moment.ms - before, 0));
    part.title = `${title(moment.name)}: ${Math.round(moment.ms)} ms`;
    track.append(part);
  });
  return track;
}

/** @param {Turn} turn */
function numbers(turn) {
  const list = document.createElement("dl");
  for (const { name, ms } of turn.moments.slice(1)) {
    const pair = document.createElement("div");
    const term = document.createElement("dt");
    term.dataset["moment"] = name;
    term.textContent = title(name);
    const value = document.createElement("dd");
    value.textContent = String(Math.round(ms));
    pair.append(term, value);
    list.append(pair);
  }
  return list;
}
