"""Submodules of the vjepa2 family."""
