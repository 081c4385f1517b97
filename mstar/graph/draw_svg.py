"""A described graph as SVG: a box for each partition, streams between them, no library and no script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from mstar.graph.draw_layout import CHAR, PAD, Box, PartitionBox, WalkBox, partition_box, wide
from mstar.graph.draw_words import Tree, stream

WIDEST = 1500.0
BETWEEN = 22.0
CHIP = 19.0
MARGIN = 16.0
CLIENT = ""

STYLE = """
text{font:11px ui-monospace,"DejaVu Sans Mono",monospace;fill:#1f2430}
.title{font-weight:700;font-size:13px}
.walkname{font-weight:700}
.quiet{fill:#6b7280}
.framename{fill:#8a5d12}
.name{text-anchor:middle;font-weight:600}
.middle{text-anchor:middle}
.label{text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:3px}
.page{fill:#fff}
.partition{fill:#f6f7f9;stroke:#c9ced8}
.client{fill:#eef4ff;stroke:#9db8e8}
.walk{fill:#fff;stroke:#dfe3ea}
.node{fill:#fff;stroke:#3b4252;stroke-width:1.3}
.frame{fill:none;stroke:#b07a1f;stroke-dasharray:5 3}
.wire{fill:none;stroke:#3b4252}
.back{stroke:#b07a1f;stroke-dasharray:4 3}
.input{fill:#eceff4;stroke:#c9ced8}
.stream{fill:#e3f2ee;stroke:#4f9d87}
.emit{fill:#e8ecfb;stroke:#6277cf}
.keep{fill:#f7ecdb;stroke:#c79a4b}
.flow{fill:none;stroke:#4f9d87;stroke-width:1.6}
.slice{stroke-dasharray:2 4}
""".strip()
ARROWS = "".join(
    f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    f'<path d="M0 1L7 4L0 7z" fill="{color}"/></marker>'
    for name, color in (("a", "#3b4252"), ("f", "#4f9d87"))
)


@dataclass(frozen=True, slots=True)
class Flow:
    """A stream, or the slices of one, into a partition; `sources` are partitions, "" the client."""

    words: str
    sources: tuple[str, ...]
    to: str
    slices: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    box: Box
    rank: int


def svg(graph: Tree) -> str:
    """A whole document."""
    flows = _flows(graph)
    boxes = _boxes(graph, flows)
    ranks = _ranks(graph, flows)
    places, bottom, right = _place(boxes, ranks, flows)
    lane_count = sum(1 for flow in flows for source in flow.sources if _far(places, source, flow.to))
    width, height = right + lane_count * 9 + 2 * MARGIN, bottom + MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {size} role="img">',
        f"<title>Walk Graph of {escape(graph['name'])}</title><style>{STYLE}</style><defs>{ARROWS}</defs>",
        f'<rect class="page" {size}/>',
        *_draw_flows(flows, places, right),
        *_draw_client(places.get(CLIENT)),
    ]
    for box in boxes:
        place = places[box.name].box
        parts.append(f'<g transform="translate({place.x:.1f} {place.y:.1f})">')
        parts += _draw_partition(box, place.w)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


# ------------------------------------------------------------------------------------------------------------- layout


def _flows(graph: Tree) -> list[Flow]:
    flows = []
    for each in graph["streams"]:
        sources = tuple(dict.fromkeys(origin["partition"] for origin in each["from"]))
        flows.append(Flow(stream(each), sources, each["partition"]))
    holders: dict[str, list[str]] = {}
    for partition in graph["partitions"]:
        for walk in partition["walks"]:
            for node in walk["nodes"]:
                holders.setdefault(node["name"], []).append(partition["name"])
    for live in graph["live"]:
        to = dict.fromkeys(name for node in live["slices"] for name in holders.get(node, ()))
        flows += [Flow(f"slices of {live['name']}", (CLIENT,), name, slices=True) for name in to]
    return flows


def _boxes(graph: Tree, flows: Sequence[Flow]) -> list[PartitionBox]:
    boxes = []
    for partition in graph["partitions"]:
        into = [flow for flow in flows if flow.to == partition["name"]]
        least = sum(wide(flow.words) + 24 for flow in into)
        boxes.append(partition_box(graph, partition, least))
    return boxes


def _ranks(graph: Tree, flows: Sequence[Flow]) -> list[list[str]]:
    """Partitions by the longest way of streams to them, those without streams last."""
    names = [partition["name"] for partition in graph["partitions"]]
    before: dict[str, set[str]] = {name: set() for name in names}
    joined = set()
    for flow in flows:
        for source in flow.sources:
            joined |= {flow.to, source}
            if source and source != flow.to:
                before[flow.to].add(source)

    def depth(name: str, path: frozenset[str]) -> int:
        return max((1 + depth(each, path | {each}) for each in before[name] - path), default=0)

    deepest: dict[int, list[str]] = {}
    alone = []
    for name in names:
        if name in joined:
            deepest.setdefault(depth(name, frozenset({name})), []).append(name)
        else:
            alone.append(name)
    return [deepest[rank] for rank in sorted(deepest)] + ([alone] if alone else [])


def _place(
    boxes: Sequence[PartitionBox], ranks: Sequence[Sequence[str]], flows: Sequence[Flow]
) -> tuple[Mapping[str, Placed], float, float]:
    """Places by partition (the client's under ""), the lower and the right end of all."""
    sizes = {box.name: box.box for box in boxes}
    rows = [row for rank in ranks for row in _rows(rank, sizes)]
    right = max((sum(sizes[name].w + BETWEEN for name in row) - BETWEEN for row in rows), default=200.0) + MARGIN
    places: dict[str, Placed] = {}
    y = MARGIN
    if any(CLIENT in flow.sources for flow in flows):
        places[CLIENT] = Placed(Box(MARGIN, y, right - MARGIN, 26), -1)
        y += 26
    for rank, row in enumerate(rows):
        gap = _gap(row, flows)
        x = MARGIN + (right - MARGIN - sum(sizes[name].w + BETWEEN for name in row) + BETWEEN) / 2
        for name in row:
            places[name] = Placed(Box(x, y + gap, sizes[name].w, sizes[name].h), rank)
            x += sizes[name].w + BETWEEN
        y += gap + max(sizes[name].h for name in row)
    return places, y, right


def _rows(rank: Sequence[str], sizes: Mapping[str, Box]) -> Iterator[list[str]]:
    row: list[str] = []
    used = 0.0
    for name in rank:
        if row and used + sizes[name].w > WIDEST:
            yield row
            row, used = [], 0.0
        row.append(name)
        used += sizes[name].w + BETWEEN
    if row:
        yield row


def _gap(row: Sequence[str], flows: Sequence[Flow]) -> float:
    """Room above a row: for the chips of the streams into it, and a line for each of their sources."""
    lines = sum(len(flow.sources) for flow in flows if flow.to in row)
    return 20 + (CHIP + 24 + lines * 6 if lines else 0)


def _far(places: Mapping[str, Placed], source: str, to: str) -> bool:
    """Whether something may stand between the two."""
    return places[to].rank - places[source].rank != 1


# ------------------------------------------------------------------------------------------------------------ drawing


def _draw_flows(flows: Sequence[Flow], places: Mapping[str, Placed], right: float) -> Iterator[str]:
    """Lines of one row lie at heights of their own; those that pass other rows go down at the right."""
    lines: dict[int, int] = {}  # row → lines above it so far
    outs: dict[str, int] = {}  # partition → lines that have left it so far
    total = {name: sum(flow.sources.count(name) for flow in flows) for name in places}
    lane = right + 14
    for name, place in places.items():
        into = [flow for flow in flows if flow.to == name]
        x = place.box.x + (place.box.w - sum(wide(flow.words) + 24 for flow in into)) / 2 + 12
        for flow in into:
            width = wide(flow.words)
            middle, top = x + width / 2, place.box.y - 14 - CHIP
            kind = "flow slice" if flow.slices else "flow"
            for source in flow.sources:
                lines[place.rank] = lines.get(place.rank, 0) + 1
                outs[source] = outs.get(source, 0) + 1
                level = top - 6 - 6 * lines[place.rank]
                begin = places[source].box
                start = begin.x + begin.w * outs[source] / (total[source] + 1)
                points = [(start, begin.y + begin.h)]
                if _far(places, source, name):
                    under = _under(places, places[source].rank) + 5 + 2 * (outs[source] % 5)
                    points += [(start, under), (lane, under), (lane, level)]
                    lane += 9
                else:
                    points.append((start, level))
                points += [(middle, level), (middle, top)]
                yield f'<path class="{kind}" d="{_path(points)}" marker-end="url(#f)"/>'
            yield _rect(Box(x - 6, top, width + 12, CHIP), "stream", 9)
            yield _text(flow.words, middle, top + 13, "middle")
            down = [(middle, top + CHIP), (middle, place.box.y - 1)]
            yield f'<path class="flow" d="{_path(down)}" marker-end="url(#f)"/>'
            x += width + 24


def _under(places: Mapping[str, Placed], rank: int) -> float:
    """Just below a row."""
    return max(place.box.y + place.box.h for place in places.values() if place.rank == rank)


def _draw_client(place: Placed | None) -> Iterator[str]:
    if place is not None:
        yield _rect(place.box, "client", 13)
        yield _text("client", place.box.x + place.box.w / 2, place.box.y + 17, "name")


def _draw_partition(partition: PartitionBox, width: float) -> Iterator[str]:
    yield _rect(Box(0, 0, width, partition.box.h), "partition", 10)
    yield _text(partition.name, PAD, PAD + 6, "title")
    for walk in partition.walks:
        yield from _draw_walk(walk, width)


def _draw_walk(walk: WalkBox, width: float) -> Iterator[str]:
    box = walk.box
    yield _rect(Box(box.x - 6, box.y - 3, width - 2 * PAD + 12, box.h + 8), "walk", 6)
    yield _text(walk.words, box.x, box.y + 10, "walkname")
    if walk.begun:
        yield _text(walk.begun, box.x + (len(walk.words) + 2) * CHAR, box.y + 10, "quiet")
    for frame in walk.frames:
        yield _rect(frame.box, "frame", 6)
        yield _text(frame.words, frame.box.x + 7, frame.box.y + 12, "framename")
    for wire in walk.wires:
        kind = "wire back" if wire.back else "wire"
        yield f'<path class="{kind}" d="{_path(wire.points)}" marker-end="url(#a)"/>'
    for wire in walk.wires:  # above all lines
        yield _text(wire.words, *wire.at, "label")
    for node in walk.nodes:
        yield _rect(node.box, "node", 6)
        yield _text(node.words, node.box.x + node.box.w / 2, node.box.y + 18, "name")
    for tag in walk.tags:
        yield _rect(tag.box, tag.tag.kind, 8)
        yield _text(tag.tag.words, tag.box.x + tag.box.w / 2, tag.box.y + 12, "middle")


def _path(points: Iterable[tuple[float, float]]) -> str:
    first, *rest = points
    return f"M{first[0]:.1f} {first[1]:.1f}" + "".join(f"L{x:.1f} {y:.1f}" for x, y in rest)


def _rect(box: Box, kind: str, radius: float) -> str:
    return (
        f'<rect class="{kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.w:.1f}" height="{box.h:.1f}" rx="{radius}"/>'
    )


def _text(words: str, x: float, y: float, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
