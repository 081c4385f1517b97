"""A placement from its YAML file, refused with `path:line: message` when it makes no sense by itself (torch-free)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mstar.errors import Rejected
from mstar.placement.lines import Source, source_of
from mstar.placement.memory import check_memory
from mstar.placement.place import TRANSPORTS, Placement, Rank

FIELDS = ("ranks", "families", "oversubscribe", "transport")
RANK_FIELDS = ("device", "threads", "host")


def read_placement(path: Path) -> Placement:
    """Raises Rejected with `path:line: message`."""
    nothing = Source(str(path))
    try:
        text = path.read_text(encoding="utf-8")
        tree = yaml.safe_load(text)
        source = source_of(str(path), text)
    except OSError as cause:
        raise Rejected(f"{path}: {cause.strerror}", code="invalid_placement", param="placement") from cause
    except yaml.MarkedYAMLError as cause:
        line = cause.problem_mark.line + 1 if cause.problem_mark else 1
        raise Source(str(path), {("",): line}).wrong(str(cause.problem), "") from cause
    except (yaml.YAMLError, UnicodeDecodeError) as cause:
        raise nothing.wrong("this is no YAML text") from cause
    return placement_of(tree, source=source)


def placement_of(tree: Any, *, source: Source | None = None) -> Placement:
    """A placement from plain data, as it stands in the YAML file."""
    source = source or Source()
    if not isinstance(tree, dict) or not isinstance(tree.get("ranks"), dict) or not tree["ranks"]:
        raise source.wrong("`ranks` must map names to {device, threads, host}", "ranks")
    for name in tree:
        if name not in FIELDS:
            raise source.wrong(f"unknown field {name!r}; known: {', '.join(FIELDS)}", str(name))
    ranks = tuple(_rank(str(name), given, source) for name, given in tree["ranks"].items())
    families = tree.get("families") or {}
    if not isinstance(families, dict):
        raise source.wrong("`families` must map names to {default, partitions, nodes}", "families")
    for name, given in families.items():
        _check_family(str(name), given, source)
    oversubscribe = tree.get("oversubscribe", False)
    if not isinstance(oversubscribe, bool):
        raise source.wrong("`oversubscribe` must be true or false", "oversubscribe")
    transport = tree.get("transport", TRANSPORTS[0])
    if transport not in TRANSPORTS:
        raise source.wrong(f"`transport` must be one of {', '.join(TRANSPORTS)}", "transport")
    return Placement(ranks, families, source, oversubscribe, transport)


def tree_of(placement: Placement) -> dict[str, Any]:
    """The plain data that `placement_of` reads."""
    return {
        "ranks": {
            rank.name: {"device": rank.device, "threads": rank.threads, "host": rank.host} for rank in placement.ranks
        },
        "families": placement.families,
        "oversubscribe": placement.oversubscribe,
        "transport": placement.transport,
    }


def _rank(name: str, given: Any, source: Source) -> Rank:
    fields = given or {}
    if not isinstance(fields, dict):
        raise source.wrong(f"rank {name} must be {{device, threads, host}}", "ranks", name)
    for field in fields:
        if field not in RANK_FIELDS:
            known = ", ".join(RANK_FIELDS)
            raise source.wrong(f"rank {name} has an unknown field; known: {known}", "ranks", name, str(field))
    threads = fields.get("threads", 1)
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise source.wrong(f"rank {name}: threads must be a positive integer", "ranks", name, "threads")
    device = str(fields.get("device", "cpu"))
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", device):
        raise source.wrong(f"rank {name}: device must be cpu, cuda or cuda:N, not {device!r}", "ranks", name, "device")
    return Rank(name, device, threads, str(fields.get("host", "127.0.0.1")))


def _check_family(name: str, given: Any, source: Source) -> None:
    if not isinstance(given, dict) or not set(given) <= {"default", "partitions", "nodes", "memory"}:
        raise source.wrong(f"family {name} must be {{default, partitions, nodes, memory}}", "families", name)
    if not isinstance(given.get("default", ""), str):
        raise source.wrong(f"`default` of family {name} must name a rank", "families", name, "default")
    memory = given.get("memory", {})
    if not isinstance(memory, dict) or not all(isinstance(each, dict) for each in memory.values()):
        raise source.wrong(f"`memory` of family {name} must map components to {{pages, …}}", "families", name, "memory")
    for component, each in memory.items():
        try:
            check_memory(each)
        except ValueError as wrong:
            raise source.wrong(f"memory of {component}: {wrong}", "families", name, "memory", str(component)) from wrong
    for kind in ("partitions", "nodes"):
        spots = given.get(kind, {})
        if not isinstance(spots, dict):
            raise source.wrong(f"`{kind}` of family {name} must map {kind} to ranks", "families", name, kind)
        for what, spot in spots.items():
            by_walk: Mapping[Any, Any] = spot if isinstance(spot, dict) else {"": spot}
            for walk, ranks in by_walk.items():
                if not _is_spot(ranks):
                    raise source.wrong(
                        f"{what} of family {name} must be on a rank, on one of a list of ranks, or on either by walk",
                        *("families", name, kind, str(what), str(walk)),
                    )


def _is_spot(ranks: Any) -> bool:
    return isinstance(ranks, str) or (isinstance(ranks, list) and all(isinstance(rank, str) for rank in ranks))
