/**
 * Where the parts of a Walk Graph stand in a drawing of a given width: partitions as lanes, ranked by the streams
 * between them, their nodes side by side. Pure: numbers in, numbers out.
 */

/** @typedef {import("./protocol.js").WalkGraph} WalkGraph */

/** @typedef {{x: number, y: number, w: number, h: number}} Box */
/** @typedef {{walk: string, node: string}} Firing what the trace calls a node that fires */
/** @typedef {Box & {key: string, partition: string, name: string, firings: Firing[], loops: boolean}} NodeBox */
/** @typedef {Box & {name: string, emits: string}} LaneBox */
/** @typedef {Box & {name: string}} SourceBox */
/** @typedef {{d: string, kind: "edge" | "back" | "stream"}} Path */
/** @typedef {{height: number, lanes: LaneBox[], nodes: NodeBox[], sources: SourceBox[], paths: Path[]}} Layout */

const NODE_HEIGHT = 40;
const NODE_LEAST = 92;
const CHARACTER = 7.2;
const NODE_GAP = 24;
const ROW_GAP = 20;
const PAD = 12;
const LABEL = 20;
const LANE_GAP = 12;
const RANK_GAP = 28;
const SOURCE_HEIGHT = 26;

/** @param {WalkGraph} graph @param {number} width @returns {Layout} */
export function layout(graph, width) {
  const sources = placeSources(graph, width);
  let y = sources.length ? SOURCE_HEIGHT + RANK_GAP : 0;
  /** @type {LaneBox[]} */
  const lanes = [];
  /** @type {NodeBox[]} */
  const nodes = [];
  for (const rank of ranks(graph)) {
    for (const row of rowsOf(rank, width)) {
      const height = Math.max(...row.map((lane) => lane.h));
      let x = Math.max(0, (width - row.reduce((sum, lane) => sum + lane.w + LANE_GAP, -LANE_GAP)) / 2);
      for (const lane of row) {
        lanes.push({ name: lane.name, emits: lane.emits, x, y, w: lane.w, h: height });
        for (const node of lane.nodes) nodes.push({ ...node, x: x + node.x, y: y + node.y });
        x += lane.w + LANE_GAP;
      }
      y += height + RANK_GAP;
    }
  }
  return { height: Math.max(0, y - RANK_GAP), lanes, nodes, sources, paths: pathsOf(graph, nodes, sources) };
}

/** @param {string} partition @param {string} node */
const keyOf = (partition, node) => `${partition}/${node}`;

/** What the client streams for as long as its session lasts. @param {WalkGraph} graph */
const sessionsLive = (graph) => graph.live.filter((live) => live.scope === "session");

/** @param {WalkGraph} graph @param {number} width @returns {SourceBox[]} */
function placeSources(graph, width) {
  const boxes = sessionsLive(graph).map(({ name }) => ({ name, w: name.length * CHARACTER + 28 }));
  let x = Math.max(0, (width - boxes.reduce((sum, box) => sum + box.w + LANE_GAP, -LANE_GAP)) / 2);
  return boxes.map((box) => {
    const placed = { ...box, x, y: 0, h: SOURCE_HEIGHT };
    x += box.w + LANE_GAP;
    return placed;
  });
}

/**
 * Partitions by how many streams lie before them; those that nothing streams to or from come last.
 * @param {WalkGraph} graph @returns {WalkGraph["partitions"][]}
 */
function ranks(graph) {
  /** @type {Map<string, Set<string>>} */
  const before = new Map(graph.partitions.map(({ name }) => [name, new Set()]));
  const joined = new Set(sessionsLive(graph).flatMap((live) => live.to.map(({ partition }) => partition)));
  const sliced = new Set(sessionsLive(graph).flatMap((live) => live.slices));
  for (const { name, walks } of graph.partitions) {
    if (walks.some((walk) => walk.nodes.some((node) => sliced.has(node.name)))) joined.add(name);
  }
  for (const stream of graph.streams) {
    for (const { partition } of stream.from) {
      if (!before.has(partition)) continue;
      before.get(stream.partition)?.add(partition);
      joined.add(partition).add(stream.partition);
    }
  }
  /** @param {string} name @param {string[]} above @returns {number} */
  const depth = (name, above) => {
    const earlier = [...(before.get(name) ?? [])].filter((each) => !above.includes(each));
    return earlier.length ? 1 + Math.max(...earlier.map((each) => depth(each, [...above, name]))) : 0;
  };
  const deepest = Math.max(0, ...graph.partitions.map(({ name }) => depth(name, [name])));
  /** @type {WalkGraph["partitions"][]} */
  const rows = Array.from({ length: deepest + 2 }, () => []);
  for (const partition of graph.partitions) {
    rows[joined.has(partition.name) ? depth(partition.name, [partition.name]) : deepest + 1]?.push(partition);
  }
  return rows.filter((row) => row.length);
}

/**
 * Lanes of one rank in as many rows as they need.
 * @param {WalkGraph["partitions"]} rank @param {number} width
 */
function rowsOf(rank, width) {
  /** @type {ReturnType<typeof laneOf>[][]} */
  const rows = [];
  let used = 0;
  for (const partition of rank) {
    const lane = laneOf(partition, width);
    const row = rows.at(-1);
    if (row && used + LANE_GAP + lane.w <= width) {
      row.push(lane);
      used += LANE_GAP + lane.w;
    } else {
      rows.push([lane]);
      used = lane.w;
    }
  }
  return rows;
}

/** @param {WalkGraph["partitions"][number]} partition @param {number} width */
function laneOf(partition, width) {
  /** @type {Map<string, NodeBox>} */
  const nodes = new Map();
  let x = PAD;
  let y = PAD + LABEL;
  let right = 0;
  for (const walk of partition.walks) {
    for (const { name, loop } of walk.nodes) {
      const firing = { walk: walk.name, node: name };
      const known = nodes.get(name);
      if (known) {
        known.firings.push(firing);
        known.loops ||= loop !== "";
        continue;
      }
      const w = Math.max(NODE_LEAST, name.length * CHARACTER + 22);
      if (x > PAD && x + w + PAD > width) {
        x = PAD;
        y += NODE_HEIGHT + ROW_GAP;
      }
      const key = keyOf(partition.name, name);
      const box = { key, partition: partition.name, name, firings: [firing], loops: loop !== "" };
      nodes.set(name, { ...box, x, y, w, h: NODE_HEIGHT });
      right = Math.max(right, x + w);
      x += w + NODE_GAP;
    }
  }
  const emits = new Set(
    partition.walks.flatMap((walk) => walk.edges.filter((edge) => edge.kind === "emit").map((edge) => edge.name)),
  );
  const told = emits.size ? `→ ${[...emits].join(", ")}` : "";
  const label = (partition.name.length + told.length + 2) * 6.6 + 2 * PAD;
  const w = Math.min(width, Math.max(right + PAD, label));
  const aside = (w - right - PAD) / 2; // what the label needs more than the nodes
  const placed = [...nodes.values()].map((node) => ({ ...node, x: node.x + aside }));
  return { name: partition.name, emits: told, w, h: y + NODE_HEIGHT + PAD, nodes: placed };
}

/** @param {WalkGraph} graph @param {NodeBox[]} nodes @param {SourceBox[]} sources @returns {Path[]} */
function pathsOf(graph, nodes, sources) {
  const at = new Map(nodes.map((node) => [node.key, node]));
  /** @type {Map<string, Path>} */
  const paths = new Map();
  /** @param {Box | undefined} from @param {Box | undefined} to @param {Path["kind"]} kind */
  const join = (from, to, kind) => {
    if (!from || !to || from === to) return;
    const path = { d: kind === "stream" ? down(from, to) : across(from, to), kind };
    paths.set(path.d, path);
  };
  for (const { name, walks } of graph.partitions) {
    for (const walk of walks) {
      for (const { kind, maker, to } of walk.edges) {
        if (!to || (kind !== "edge" && kind !== "back")) continue;
        join(at.get(keyOf(name, maker)), at.get(keyOf(name, to)), kind);
      }
    }
  }
  for (const stream of graph.streams) {
    for (const { partition, maker } of stream.from) {
      join(at.get(keyOf(partition, maker)), at.get(keyOf(stream.partition, stream.to)), "stream");
    }
  }
  sessionsLive(graph).forEach((live, index) => {
    for (const { partition, node } of live.to) join(sources[index], at.get(keyOf(partition, node)), "stream");
    for (const node of nodes.filter((each) => live.slices.includes(each.name))) join(sources[index], node, "stream");
  });
  return [...paths.values()];
}

/** @param {Box} from @param {Box} to */
function down(from, to) {
  const [x1, y1, x2, y2] = [from.x + from.w / 2, from.y + from.h, to.x + to.w / 2, to.y];
  const bend = Math.max(16, (y2 - y1) / 2);
  return `M${r(x1)} ${r(y1)}C${r(x1)} ${r(y1 + bend)} ${r(x2)} ${r(y2 - bend)} ${r(x2)} ${r(y2 - 1)}`;
}

/** Inside a lane: straight on where the next one is meant, around the others elsewhere. @param {Box} from @param {Box} to */
function across(from, to) {
  if (from.y === to.y && to.x > from.x && to.x - from.x - from.w <= NODE_GAP + 1) {
    return `M${r(from.x + from.w)} ${r(from.y + from.h / 2)}H${r(to.x - 1)}`;
  }
  const [x1, x2] = [from.x + from.w / 2, to.x + to.w / 2];
  if (to.y > from.y) {
    return `M${r(x1)} ${r(from.y + from.h)}C${r(x1)} ${r(from.y + from.h + 14)} ${r(x2)} ${r(to.y - 14)} ${r(x2)} ${r(to.y - 1)}`;
  }
  const top = Math.min(from.y, to.y) - 14;
  return `M${r(x1)} ${r(from.y)}C${r(x1)} ${r(top)} ${r(x2)} ${r(top)} ${r(x2)} ${r(to.y - 1)}`;
}

/** @param {number} value */
const r = (value) => Math.round(value * 10) / 10;
