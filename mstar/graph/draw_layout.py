"""Where the parts of a described graph stand: partitions ranked by the streams between them, walks as rows, loops as
frames around their nodes. Numbers in, numbers out; lengths are pixels of a drawing in 11 px type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from mstar.graph.draw_words import Tag, Tree, enters, framed, leaves, loop, tasks, title

CHAR = 6.7
"""Width of a character."""
NODE = 28
TAG = 17
LANE = 9
"""Between two edges that go over the nodes."""
FRAME = 9
"""Between a frame and what is in it."""
HEAD = 16
"""Height of a title."""
PAD = 14
LEAST_GAP = 26


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    w: float
    h: float


@dataclass(frozen=True, slots=True)
class TagBox:
    box: Box
    tag: Tag


@dataclass(frozen=True, slots=True)
class NodeBox:
    box: Box
    words: str


@dataclass(frozen=True, slots=True)
class Frame:
    box: Box
    words: str


@dataclass(frozen=True, slots=True)
class Wire:
    """An edge inside a walk: through these points, with its name at one of them."""

    points: tuple[tuple[float, float], ...]
    words: str
    at: tuple[float, float]
    back: bool


@dataclass(frozen=True, slots=True)
class WalkBox:
    box: Box
    words: str
    begun: str
    nodes: tuple[NodeBox, ...]
    tags: tuple[TagBox, ...]
    frames: tuple[Frame, ...]
    wires: tuple[Wire, ...]


@dataclass(frozen=True, slots=True)
class PartitionBox:
    box: Box
    name: str
    walks: tuple[WalkBox, ...]


def wide(words: str) -> float:
    """Width of a text."""
    return len(words) * CHAR


@dataclass(slots=True)
class _Column:
    """A node with all that stands above and below it."""

    node: Tree
    words: str
    above: list[Tag]
    below: list[Tag]
    x: float = 0.0
    w: float = 0.0
    around: tuple[str, ...] = ()  # frames, from outside in


Side: TypeAlias = Literal["opens", "closes"]


@dataclass(slots=True)
class _Row:
    """One walk while it is being laid out, its upper left corner at 0, 0."""

    walk: Tree
    columns: list[_Column]
    frames: Mapping[str, Tree]
    over: list[tuple[int, int, str, bool]] = field(default_factory=list)  # edges over nodes: from, to, name, back
    beside: dict[int, list[str]] = field(default_factory=dict)  # edges to the next column, by the left one

    @property
    def depth(self) -> int:
        return max((len(column.around) for column in self.columns), default=0)


def partition_box(graph: Tree, partition: Tree, least: float) -> PartitionBox:
    """A partition with its upper left corner at 0, 0, at least so wide."""
    y: float = PAD + HEAD
    walks = []
    for walk in partition["walks"]:
        box = _walk_box(graph, partition["name"], walk, PAD, y)
        walks.append(box)
        y += box.box.h + 10
    width = max([least, wide(partition["name"]) + 2 * PAD, *(walk.box.x + walk.box.w + PAD for walk in walks)])
    return PartitionBox(Box(0, 0, width, y - 10 + PAD), partition["name"], tuple(walks))


def _walk_box(graph: Tree, partition: str, walk: Tree, x: float, y: float) -> WalkBox:
    row = _row(graph, partition, walk)
    left: float = FRAME * row.depth
    for number, column in enumerate(row.columns):
        before = row.columns[number - 1] if number else None
        left += FRAME * _edges(column, before)
        column.x, left = left, left + column.w
        following = row.columns[number + 1] if number + 1 < len(row.columns) else None
        left += FRAME * _edges(column, following)
        if following is not None:
            left += max(LEAST_GAP, wide(", ".join(row.beside.get(number, ()))) + 18)
    return _placed(row, tasks(graph, partition, walk["name"]), x, y, left + FRAME)


def _row(graph: Tree, partition: str, walk: Tree) -> _Row:
    frames = {each["name"]: each for each in framed(walk)}
    parents = {each["name"]: each["parent"] for each in walk["loops"]}
    columns = []
    for node in walk["nodes"]:
        chain, name = [], node["loop"]
        while name:
            if name in frames:
                chain.append(name)
            name = parents[name]
        above, below = list(enters(graph, partition, walk, node)), list(leaves(walk, node))
        words = title(node)
        widest = max([wide(words) + 22, 48.0, *(wide(tag.words) + 12 for tag in above + below)])
        columns.append(_Column(node, words, above, below, 0, widest, tuple(reversed(chain))))
    row = _Row(walk, columns, frames)
    _sort_edges(row)
    for name, each in frames.items():  # a frame is as wide as its title
        inside = [column for column in columns if name in column.around]
        lack = wide(loop(each)) + 16 - sum(column.w for column in inside)
        inside[-1].w += max(0.0, lack)
    return row


def _sort_edges(row: _Row) -> None:
    """Edges to the next column go straight, all others over the nodes."""
    places = {column.node["name"]: number for number, column in enumerate(row.columns)}
    joined: dict[tuple[int, int, bool], list[str]] = {}
    for edge in row.walk["edges"]:
        if edge["kind"] in {"edge", "back"}:
            ends = (places[edge["maker"]], places[edge["to"]], edge["kind"] == "back")
            names = joined.setdefault(ends, [])
            if edge["name"] not in names:
                names.append(edge["name"])
    for (start, end, back), names in joined.items():
        if end == start + 1 and not back:
            row.beside[start] = names
        else:
            row.over.append((start, end, ", ".join(names), back))


def _edges(column: _Column, neighbour: _Column | None) -> int:
    """How many frames end between a column and its neighbour, on the column's side."""
    shared = 0
    if neighbour is not None:
        while column.around[: shared + 1] == neighbour.around[: shared + 1] and shared < len(column.around):
            shared += 1
    return len(column.around) - shared


def _placed(row: _Row, begun: Sequence[str], x: float, y: float, width: float) -> WalkBox:
    above = max((len(column.above) for column in row.columns), default=0)
    below = max((len(column.below) for column in row.columns), default=0)
    lanes = y + HEAD + 3 + (above * (TAG + 3)) + (HEAD + 2) * row.depth
    nodes = lanes + (len(row.over) * (LANE + 7) + 12 if row.over else 6)
    under = nodes + NODE + 6
    bottom = under + below * (TAG + 3) + FRAME * row.depth
    tags, boxes = [], []
    for column in row.columns:
        middle = x + column.x + column.w / 2
        boxes.append(NodeBox(Box(x + column.x, nodes, column.w, NODE), column.words))
        for number, tag in enumerate(column.above):
            tags.append(TagBox(_tag(middle, y + HEAD + 3 + (above - len(column.above) + number) * (TAG + 3), tag), tag))
        for number, tag in enumerate(column.below):
            tags.append(TagBox(_tag(middle, under + number * (TAG + 3), tag), tag))
    frames = [_frame(row, name, x, lanes, bottom) for name in row.frames]
    wires = [*_straight(row, x, nodes), *_over(row, x, lanes, nodes)]
    then = f" → {row.walk['then']}" if row.walk["then"] else ""
    words = f"{row.walk['name']}{then}"
    told = f"begins {', '.join(begun)}" if begun else ""
    whole = max(width, wide(words) + wide(told) + 24)
    return WalkBox(Box(x, y, whole, bottom - y), words, told, tuple(boxes), tuple(tags), tuple(frames), tuple(wires))


def _tag(middle: float, y: float, tag: Tag) -> Box:
    width = wide(tag.words) + 10
    return Box(middle - width / 2, y, width, TAG)


def _frame(row: _Row, name: str, x: float, lanes: float, bottom: float) -> Frame:
    inside = [column for column in row.columns if name in column.around]
    level = inside[0].around.index(name)  # 0 = outermost
    inner = max(len(column.around) for column in inside) - level
    left, right = inside[0], inside[-1]
    out_left = FRAME * (len(left.around) - level)
    out_right = FRAME * (len(right.around) - level)
    top = lanes - (HEAD + 2) * inner
    start, stop = x + left.x - out_left, x + right.x + right.w + out_right
    return Frame(Box(start, top, stop - start, bottom - FRAME * level - top), loop(row.frames[name]))


def _straight(row: _Row, x: float, nodes: float) -> Iterator[Wire]:
    for number, names in row.beside.items():
        one, other = row.columns[number], row.columns[number + 1]
        start, stop = x + one.x + one.w, x + other.x
        at = nodes + NODE / 2
        yield Wire(((start, at), (stop, at)), ", ".join(names), ((start + stop) / 2 - 2, at - 3), back=False)


def _over(row: _Row, x: float, lanes: float, nodes: float) -> Iterator[Wire]:
    ordered = sorted(row.over, key=lambda each: -abs(each[1] - each[0]))  # the longest highest
    ports = _ports(row, ordered)
    for number, (_, _, name, back) in enumerate(ordered):
        y = lanes + 13 + number * (LANE + 7)
        begin, stop = x + ports[number, "from"], x + ports[number, "to"]
        points = ((begin, nodes), (begin, y), (stop, y), (stop, nodes))
        yield Wire(points, name, ((begin + stop) / 2, y - 3), back)


def _ports(row: _Row, edges: Sequence[tuple[int, int, str, bool]]) -> Mapping[tuple[int, str], float]:
    """Where edges meet the upper sides of their nodes: those from the left at the left, nested inside one another."""
    ends: dict[int, list[tuple[int, int, str]]] = {}  # column → (the way to the other end, edge, which end)
    for number, (start, end, _, _) in enumerate(edges):
        ends.setdefault(start, []).append((end - start, number, "from"))
        ends.setdefault(end, []).append((start - end, number, "to"))
    ports = {}
    for column, there in ends.items():
        left = sorted((each for each in there if each[0] < 0), key=lambda each: -each[0])
        own = sorted((each for each in there if each[0] == 0), key=lambda each: each[2], reverse=True)
        right = sorted((each for each in there if each[0] > 0), key=lambda each: -each[0])
        box = row.columns[column]
        for place, (_, number, which) in enumerate([*left, *own, *right], 1):
            ports[number, which] = box.x + box.w * place / (len(there) + 1)
    return ports
