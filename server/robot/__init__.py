"""Robots: observations come in, plans and chunks of actions go out."""
