"""Who is at fault decides the class (torch-free).

The caller's fault → `Rejected`. One request's → `RequestFailed`. A process's → `WorkerLost`. A declaration's, at load →
`GraphError`. Anything else is ours: it is not caught.
"""

from __future__ import annotations


class MStarError(Exception):
    """Root of all errors raised on purpose."""


class Rejected(MStarError):
    """The caller asked for something that can not be done; nothing was changed.

    `code` is a stable machine-readable word, `param` names the offending field, e.g. `session.audio.input.format.rate`.
    """

    def __init__(self, message: str, *, code: str = "invalid_value", param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


class GraphError(MStarError):
    """A declaration is wrong; the sentence names the node, edge or walk."""


class WeightsError(MStarError):
    """A checkpoint is missing, damaged or of another layout; one line with path and cause."""


class RequestFailed(MStarError):
    """One request failed in one node; the others of its batch go on."""

    def __init__(self, request: str, node: str, cause: str) -> None:
        super().__init__(f"request {request} failed in node {node}: {cause}")
        self.request = request
        self.node = node
        self.cause = cause


class WorkerLost(MStarError):
    """A worker process died or made no progress."""


class ConductorLost(WorkerLost):
    """The conductor died or does not answer: nothing of its run can be saved, and a new run may be begun."""
