"""From the `"module:factory"` of a declaration to the submodule it names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from mstar.errors import GraphError
from mstar.submodule import Submodule
from mstar.tensors import Value


def resolve(component: str, reference: str, settings: Mapping[str, Value]) -> Submodule:
    """Import the factory and call it with the family's settings.

    Raises GraphError, naming the component, when there is no such factory or it makes something else. What the factory
    itself raises (a missing checkpoint, say) goes through.
    """
    module_name, _, factory_name = reference.partition(":")
    if not module_name or not factory_name:
        raise GraphError(f"component {component}: submodule {reference!r} is not of the form 'module:factory'")
    try:
        module = importlib.import_module(module_name)
    except ImportError as cause:
        raise GraphError(f"component {component}: submodule {reference!r} can not be imported: {cause}") from cause
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise GraphError(f"component {component}: module {module_name} has no factory {factory_name!r}")
    submodule = factory(settings)
    if not isinstance(submodule, Submodule):
        raise GraphError(
            f"component {component}: {reference!r} made a {type(submodule).__name__}, which lacks a submodule's "
            "max_batch, collate, forward or verdict"
        )
    return submodule
