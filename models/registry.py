"""Families by name, and what each offers to a server (torch-free).

A family is served through its `Card`: the server knows tasks, rates and voices from it and nothing else of the family.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from models.card import Card, Conversation, Key, Planner, Policy, Recognition, Speech
from mstar.errors import Rejected
from mstar.graph.declare import Graph
from mstar.graph.draw import Format, draw
from mstar.tensors import Value

__all__ = [
    "BUILT_IN",
    "Card",
    "Conversation",
    "Family",
    "Key",
    "Planner",
    "Policy",
    "Recognition",
    "Speech",
    "card_of",
    "drawn",
    "family",
    "module_of",
]


@runtime_checkable
class Family(Protocol):
    """The module-level `FAMILY` object of a family's `model.py`."""

    @property
    def card(self) -> Card: ...

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the settings that it takes from a command line."""
        ...

    def graph(self, settings: Mapping[str, Value]) -> Graph:
        """The Walk Graph; settings as given on the command line (checkpoint paths, voice). Raises Rejected."""
        ...


@runtime_checkable
class Configured(Protocol):
    """A family whose card depends on its settings."""

    def configured(self, settings: Mapping[str, Value]) -> Card:
        """Raises WeightsError, Rejected."""
        ...


BUILT_IN: Mapping[str, str] = {
    "orpheus": "models.orpheus.model",
    "pi05": "models.pi05.model",
    "toy": "models.toy.model",
    "vjepa2": "models.vjepa2.model",
    "voice": "models.voice.model",
}


def module_of(name: str) -> str:
    """The module with a family's `FAMILY`: built in, installed under the entry point group `mstar.families`, or `name`
    itself if it is a module path. Raises Rejected naming the known ones.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    for point in entry_points(group="mstar.families"):
        if point.name == name:
            return point.value
    if "." in name:
        return name
    known = ", ".join(sorted(BUILT_IN))
    raise Rejected(f"unknown family {name!r}; known: {known}", code="unknown_family", param="family")


def family(name: str) -> Family:
    """The family of that name. Raises Rejected if there is none, or if it can not be loaded."""
    module = module_of(name)
    try:
        found: object = importlib.import_module(module).FAMILY
    except (ModuleNotFoundError, AttributeError) as cause:
        text = f"family {name!r} can not be loaded from {module}: {cause}"
        raise Rejected(text, code="unknown_family", param="family") from cause
    if not isinstance(found, Family):
        text = f"family {name!r} can not be loaded from {module}: FAMILY needs card, settings and graph"
        raise Rejected(text, code="unknown_family", param="family")
    return found


def card_of(name: str, settings: Mapping[str, Value]) -> Card:
    """What the family of that name offers with these settings. Raises Rejected, WeightsError."""
    found = _checked(name, settings)
    return found.configured(settings) if isinstance(found, Configured) else found.card


def drawn(name: str, settings: Mapping[str, Value], form: Format) -> str:
    """The Walk Graph of a family with these settings, as SVG or text. Raises Rejected, WeightsError, GraphError."""
    return draw(_checked(name, settings).graph(settings), form)


def _checked(name: str, settings: Mapping[str, Value]) -> Family:
    """The family of that name. Raises Rejected for a setting that it does not have."""
    found = family(name)
    for setting in settings:
        if setting not in found.settings:
            known = ", ".join(found.settings) or "none"
            text = f"family {name} has no setting {setting!r}; it has: {known}"
            raise Rejected(text, code="unknown_setting", param=f"{name}.{setting}")
    return found
