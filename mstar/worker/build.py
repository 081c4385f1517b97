"""Builds a rank's worker: resolves its submodules, puts them on their engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from mstar.bus import Endpoint
from mstar.clock import Clock
from mstar.engine.api import Engine
from mstar.engine.attention.choose import best_backend
from mstar.engine.kv.settings import KVSettings, default_settings, kv_settings, page_bytes
from mstar.engine.kv_engine import KVCacheEngine
from mstar.engine.resolve import resolve
from mstar.engine.stateless import StatelessEngine
from mstar.errors import GraphError
from mstar.graph.declare import Graph
from mstar.placement import Placed, Rank
from mstar.submodule import KVSubmodule, Submodule
from mstar.transport.api import Transport
from mstar.worker.executor import Executor
from mstar.worker.hosted import Hosted, host, qualified
from mstar.worker.room import available_bytes, missing_device, shortage
from mstar.worker.worker import Worker


def build_worker(
    name: str,
    rank: Rank,
    graphs: Mapping[str, Graph],
    placed: Mapping[str, Placed],
    settings: Mapping[str, Mapping[str, Any]],
    endpoint: Endpoint,
    clock: Clock,
    executor: Executor,
    transport: Transport,
) -> Worker:
    """Loads all weights of the rank. Raises WeightsError, GraphError, Rejected where its device is not there or its K/V
    memory does not fit.
    """
    missing = missing_device(rank.device)
    if missing is not None:
        source = next(iter(placed.values())).source
        raise source.wrong(f"rank {rank.name}: device {rank.device}: {missing}", "ranks", rank.name, "device")
    torch.set_num_threads(rank.threads)
    families: dict[str, Hosted] = {}
    stateless: dict[str, Submodule] = {}
    cached: dict[str, KVSubmodule] = {}
    session_state: set[str] = set()
    memory: dict[str, KVSettings] = {}
    for family, graph in graphs.items():
        if name not in placed[family].workers:
            continue
        hosted = families[family] = host(family, graph, placed[family], name)
        given = {**settings[family], "threads": rank.threads, "device": rank.device}
        for component in hosted.components.values():
            key = qualified(family, component.name)
            walks = placed[family].walks(name, component.name)
            submodule = resolve(component.name, component.submodule, {**given, "walks": walks})
            if component.engine == "kv":
                if not isinstance(submodule, KVSubmodule):
                    raise GraphError(
                        f"component {component.name}: {component.submodule} has no KV geometry, keys or sampling"
                    )
                cached[key] = submodule
                given_memory = placed[family].memory.get(component.name, {})
                try:
                    memory[key] = kv_settings(given_memory, submodule.geometry, default_settings(rank.device))
                except ValueError as wrong:
                    raise GraphError(f"component {component.name}: memory: {wrong}") from wrong
            else:
                stateless[key] = submodule
            if component.state == "session":
                session_state.add(key)
    _check_room(rank, placed, cached, memory)
    parts: dict[str, Submodule] = {**stateless, **cached}
    engines: dict[str, Engine] = dict.fromkeys(
        stateless, StatelessEngine(stateless, session_state=session_state, device=rank.device)
    )
    if cached:
        cache = KVCacheEngine(cached, settings=memory, session_state=session_state, backend=best_backend)
        _capture(cache, rank)
        engines |= dict.fromkeys(cached, cache)
    limits = {key: submodule.max_batch for key, submodule in parts.items()}
    return Worker(name, families, engines, limits, endpoint, clock, executor, transport)


def _capture(cache: KVCacheEngine, rank: Rank) -> None:
    """Raises GraphError where the rank's steps can not be captured: a kernel does not compile, memory is short."""
    try:
        cache.capture()
    except Exception as why:  # whatever a library raises, the rank can not do its work
        said = str(why).strip().partition("\n")[0]
        raise GraphError(
            f"rank {rank.name}: steps can not be captured on {rank.device}: {type(why).__name__}: {said} "
            "(`graphs: false` among a component's memory settings runs them as they are)"
        ) from why


def _check_room(
    rank: Rank, placed: Mapping[str, Placed], cached: Mapping[str, KVSubmodule], memory: Mapping[str, KVSettings]
) -> None:
    needed = {
        key: memory[key].pages * page_bytes(submodule.geometry, memory[key].page_size)
        for key, submodule in cached.items()
    }
    short = shortage(needed, available_bytes(rank.device)) if needed else None
    if short is not None:
        family, _, component = short[0].partition("/")
        raise placed[family].source.wrong(f"rank {rank.name}: {short[1]}", "families", family, "memory", component)
