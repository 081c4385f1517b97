"""What a request holds of a component, as a value that can travel to another engine and live on there.

An image is a tree of arrays, text and numbers, so that any transport may carry it:

    {"session": str, "state": the committed node state,
     "prompt": int, "cached": int, "divided": bool,                  # of `Holding`
     "labels": {label: {"keys": int64 [positions], "starts": int32 [positions], "canonical": int,  # of `KVSequence`
                        "kv": [layers, 2, positions, kv_heads, head_dim]}},
     "recall": None or {"keys", "starts"},                           # of a preempted request
     "cross": [[layer, k [context, kv_heads, head_dim], v], …]}

Positions are copied bit for bit and in order, wherever the pages lie on either side; the page size, the memory layout
and the attention backend of the two engines may differ, the geometry may not. A transport that has no 16-bit floats may
send 32-bit ones: they become the same 16 bits again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from mstar.engine.attention.backend import AttentionBackend
from mstar.engine.kv.ledger import Holding, Ledger, Recall
from mstar.engine.kv.sequences import KVPool
from mstar.submodule import KVGeometry
from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class LabelImage:
    """One label's sequence."""

    keys: np.ndarray  # [positions] int64
    starts: np.ndarray  # [positions] int32
    canonical: int
    kv: Tensor  # [layers, 2, positions, kv_heads, head_dim]


@dataclass(frozen=True, slots=True)
class RequestImage:
    """Everything of one (request, component); what comes after it is the same wherever it goes on."""

    session: str
    state: Value = None
    prompt: int = 0
    cached: int = 0
    divided: bool = False
    labels: Mapping[str, LabelImage] | None = None  # None: the request has no sequences here
    recall: Recall | None = None
    cross: Mapping[int, tuple[Tensor, Tensor]] | None = None  # layer → K, V, each [context, kv_heads, head_dim]

    @property
    def bytes(self) -> int:
        """Of its K/V."""
        tensors = [each.kv for each in (self.labels or {}).values()]
        tensors += [each for pair in (self.cross or {}).values() for each in pair]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def value(self) -> Value:
        """As a tree that can travel."""
        if self.labels is None:
            return {"session": self.session, "state": self.state}
        return {
            "session": self.session,
            "state": self.state,
            "prompt": self.prompt,
            "cached": self.cached,
            "divided": self.divided,
            "labels": {
                label: {"keys": each.keys, "starts": each.starts, "canonical": each.canonical, "kv": each.kv}
                for label, each in self.labels.items()
            },
            "recall": None if self.recall is None else {"keys": self.recall.keys, "starts": self.recall.starts},
            "cross": [[layer, k, v] for layer, (k, v) in (self.cross or {}).items()],
        }

    @classmethod
    def of(cls, value: Value) -> RequestImage:
        """Back from the tree, whose tensors may have become numpy arrays on the way. Raises ValueError."""
        if not isinstance(value, Mapping) or not isinstance(value.get("session"), str):
            raise ValueError("this is no image of a request")
        session, state = str(value["session"]), value.get("state")
        if "labels" not in value:
            return cls(session, state)
        labels = cast("Mapping[str, Mapping[str, Value]]", value["labels"])
        recall = cast("Mapping[str, Value] | None", value["recall"])
        cross = cast("Sequence[tuple[int, Value, Value]]", value["cross"])
        return cls(
            session,
            state,
            cast("int", value["prompt"]),
            cast("int", value["cached"]),
            bool(value["divided"]),
            {
                label: LabelImage(
                    _ints(each["keys"]),
                    _ints(each["starts"], np.int32),
                    cast("int", each["canonical"]),
                    _tensor(each["kv"]),
                )
                for label, each in labels.items()
            },
            None if recall is None else Recall(_ints(recall["keys"]), _ints(recall["starts"], np.int32)),
            {int(layer): (_tensor(k), _tensor(v)) for layer, k, v in cross},
        )


def image_of(holding: Holding, pool: KVPool, backend: AttentionBackend, state: Value) -> RequestImage:
    """A copy of what the request holds; nothing is freed."""
    pages = pool.page_count
    return RequestImage(
        holding.session,
        state,
        holding.prompt,
        holding.cached,
        holding.divided,
        {
            label: LabelImage(
                each.keys.copy(),
                each.starts.copy(),
                each.canonical,
                backend.read(each.pages[: pages(each.length)], each.length),
            )
            for label, each in holding.sequences.items()
        },
        holding.recall,
        backend.read_cross(holding.cross),
    )


def install(image: RequestImage, request: str, ledger: Ledger, backend: AttentionBackend) -> Holding:
    """Give the request here what the image holds. Raises OutOfPages, ValueError; nothing is held then."""
    holding = ledger.open(request, image.session)
    try:
        for label, each in (image.labels or {}).items():
            sequence = holding.sequence(label)
            ledger.reserve(sequence, len(each.keys))
            backend.write(sequence.pages, 0, each.kv)
            ledger.commit(sequence, each.keys, starts=each.starts, canonical=each.canonical)
        holding.cross = backend.write_cross(image.cross or {})
    except BaseException:
        ledger.abandon(request)
        raise
    holding.prompt, holding.cached, holding.divided = image.prompt, image.cached, image.divided
    holding.recall = image.recall
    return holding


def check_image(image: RequestImage, geometry: KVGeometry) -> None:
    """Raise ValueError unless the image is of a component of this geometry."""
    for label, each in (image.labels or {}).items():
        wanted = (geometry.layers, 2, len(each.keys), geometry.kv_heads, geometry.head_dim)
        if label not in geometry.labels:
            raise ValueError(f"an image of label {label!r}, the geometry has {geometry.labels}")
        if tuple(each.kv.shape) != wanted:
            raise ValueError(f"an image of shape {tuple(each.kv.shape)}, the geometry wants {wanted}")


def _ints(value: Value, dtype: type[np.integer] = np.int64) -> np.ndarray:
    return np.array(value, dtype=dtype)


def _tensor(value: Value) -> Tensor:
    return value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
