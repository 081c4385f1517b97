"""Runs batches of firings: stateless components, and components with a K/V cache."""
