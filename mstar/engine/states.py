"""Committed state values of components, by the request or session they belong to."""

from __future__ import annotations

from collections.abc import Collection

from mstar.engine.api import Firing
from mstar.tensors import Value


class StateStore:
    """State of the components named in `session_scoped` belongs to sessions, of all others to requests."""

    def __init__(self, session_scoped: Collection[str] = ()) -> None:
        self._session_scoped = frozenset(session_scoped)
        self._of_sessions: dict[str, dict[str, Value]] = {}
        self._of_requests: dict[str, dict[str, Value]] = {}
        self._session_of: dict[str, str] = {}

    def get(self, firing: Firing) -> Value:
        """The committed state for this firing, None at first."""
        if firing.component in self._session_scoped:
            return self._of_sessions.get(firing.session, {}).get(firing.component)
        return self._of_requests.get(firing.request, {}).get(firing.component)

    def commit(self, firing: Firing, state: Value) -> None:
        if firing.component in self._session_scoped:
            self._of_sessions.setdefault(firing.session, {})[firing.component] = state
        else:
            self._of_requests.setdefault(firing.request, {})[firing.component] = state
            self._session_of[firing.request] = firing.session

    def session(self, request: str) -> str:
        """Whose request it is, "" where it has no state."""
        return self._session_of.get(request, "")

    def give(self, request: str, component: str) -> Value:
        """Take out what the request has of the component; None if that belongs to the session."""
        return self._of_requests.get(request, {}).pop(component, None)

    def take(self, session: str, request: str, component: str, state: Value) -> None:
        """Put in what another store gave."""
        if state is not None and component not in self._session_scoped:
            self._of_requests.setdefault(request, {})[component] = state
            self._session_of[request] = session

    def end_request(self, request: str) -> None:
        self._of_requests.pop(request, None)
        self._session_of.pop(request, None)

    def end_session(self, session: str) -> None:
        self._of_sessions.pop(session, None)
        for request in [request for request, owner in self._session_of.items() if owner == session]:
            self.end_request(request)

    def __len__(self) -> int:
        return sum(len(of) for owners in (self._of_sessions, self._of_requests) for of in owners.values())
