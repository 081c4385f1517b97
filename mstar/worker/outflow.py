"""Where a firing's outputs go: into streams, to the client, into what is kept for a later walk."""

from __future__ import annotations

from collections.abc import Sequence

from mstar.bus import Endpoint
from mstar.graph.cursor import Delivery, Kept, ToClient, ToStream
from mstar.messages import Emission
from mstar.submodule import Many, Rows
from mstar.tensors import Output
from mstar.worker.links import Outlets
from mstar.worker.pacing import Pacing
from mstar.worker.ready import Ready
from mstar.worker.state import RequestState
from mstar.worker.values import for_client, weigh


class Outflow:
    def __init__(self, endpoint: Endpoint, ready: Ready, outlets: Outlets, pacing: Pacing) -> None:
        self._endpoint = endpoint
        self._ready = ready
        self._outlets = outlets
        self._pacing = pacing
        self.emissions = 0

    def deliver(self, request: RequestState, partition: str, deliveries: Sequence[Delivery]) -> None:
        """Deliver in order. A stream into a partition that the request does not run goes nowhere."""
        if not deliveries:
            return
        touched = set()
        leaving: dict[tuple[str, str], list[Output]] = {}
        for delivery in deliveries:
            match delivery:
                case ToClient(edge=edge, value=value):
                    self._emit(request, edge.name, edge.modality, value)
                case ToStream(edge=edge, value=value):
                    key = (edge.name, edge.partition)
                    if key in request.buffers:
                        self._put(request, key, value)
                        touched.add(edge.partition)
                    elif key in request.outlets:
                        leaving.setdefault(key, []).append(value)
                case Kept(name=name, value=value):
                    request.kept.setdefault(partition, {})[name] = value
        for key, values in leaving.items():
            self._outlets.send(request, key, values)
        for other in touched:
            self._ready.refresh(request, other)

    def end_streams(self, request: RequestState, partition: str) -> None:
        """The partition is done: its streams end with what they have."""
        for key in request.session.family.feeds[partition]:
            if key in request.buffers:
                request.buffers[key].end(request.produced.get(key, 0))
                self._ready.refresh(request, key[1])
            elif key in request.outlets:
                self._outlets.end(request, key)

    def _put(self, request: RequestState, key: tuple[str, str], value: Output) -> None:
        buffer = request.buffers[key]
        index = request.produced.get(key, 0)
        now = self._ready.now
        match value:
            case Many(items=items, cut=cut):
                for item in items:
                    index += buffer.put(index, item, rows=False, now=now)
                if cut:
                    buffer.cut(index)
            case Rows(array=array, cut=cut):
                index += buffer.put(index, array, rows=True, cut=cut, now=now)
            case _:
                index += buffer.put(index, value, now=now)
        request.produced[key] = index

    def _emit(self, request: RequestState, output: str, modality: str, value: Output) -> None:
        index = request.emitted.get(output, 0)
        amount = weigh(modality, value)
        request.emitted[output] = index + 1
        request.weight[output] = request.weight.get(output, 0) + amount
        if modality == "audio":
            request.sounded += amount
        request.begun = True
        self._pacing.note(request)
        self.emissions += 1
        self._endpoint.send(request.session.client, Emission(request.name, output, index, for_client(value)))
