"""Families for robots whose answers one can compute by hand: a planner that imagines, a policy of four cameras."""
