/** Drawings of plans: where one leads, and how the energies of the last ones were. */

const SVG = "http://www.w3.org/2000/svg";
const SHOWN = 40;

/**
 * @param {string} name @param {Record<string, string | number>} attributes
 * @returns {SVGElement}
 */
function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}

/**
 * Over a picture: places in parts of it, from now to the end of the plan.
 * @param {Element} over @param {readonly (readonly [number, number])[]} places
 */
export function drawPath(over, places) {
  const points = places.map(([x, y]) => `${x},${y}`).join(" ");
  const dots = places.slice(1).map(([x, y]) => shape("line", { x1: x, y1: y, x2: x + 1e-4, y2: y }));
  over.replaceChildren(shape("polyline", { points }), ...dots);
}

/** Bars, one a plan; the first plan for a goal is of another colour. */
export class Energies {
  /** @param {Element} into */
  constructor(into) {
    this.into = into;
    /** @type {{ energy: number, first: boolean }[]} */
    this.bars = [];
  }

  /** @param {number} energy @param {boolean} first */
  put(energy, first) {
    this.bars = [...this.bars, { energy, first }].slice(-SHOWN);
    const most = Math.max(...this.bars.map((bar) => bar.energy));
    this.into.setAttribute("viewBox", `0 0 ${SHOWN} 1`);
    this.into.setAttribute("preserveAspectRatio", "none");
    this.into.replaceChildren(
      ...this.bars.map((bar, index) => {
        const height = bar.energy / most;
        const x = SHOWN - this.bars.length + index;
        return shape("rect", { x: x + 0.1, y: 1 - height, width: 0.8, height, class: bar.first ? "first" : "" });
      }),
    );
  }
}
