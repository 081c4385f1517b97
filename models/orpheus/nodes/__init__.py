"""The family's submodules (torch side)."""
